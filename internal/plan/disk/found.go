package disk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// A client of Azure can change the disk that an AzVolume records. Azure refuses a request that was
// made from the record then. The refusal leads to one read of the disk, and what was read is used
// instead of the record where the two differ. docs/reference/disk-and-record.md has each field.

// SKU is the disk's SKU: as Azure said last, or else as the driver made it.
func SKU(v *apiv1.AzVolume) string {
	if d := v.Status.Disk; d != nil && d.SKUName != "" {
		return d.SKUName
	}
	return recordedSKU(v)
}

func recordedSKU(v *apiv1.AzVolume) string {
	if v.Status.Applied != nil {
		return v.Status.Applied.SKUName
	}
	return v.Spec.Disk.SKUName
}

// EncryptionSet is the disk encryption set of the disk: as Azure said last, or else as spec.disk
// says.
func EncryptionSet(v *apiv1.AzVolume) string {
	if d := v.Status.Disk; d != nil && d.MaxShares > 0 { // Azure has answered
		return d.DiskEncryptionSetID
	}
	return v.Spec.Disk.DiskEncryptionSetID
}

// mustBeRead reports whether Azure has refused to attach the disk since it was read last.
func mustBeRead(in Input) bool {
	return slices.ContainsFunc(in.Attachments, func(a *apiv1.AzVolumeAttachment) bool {
		return DiskMustBeRead(in.Volume, a)
	})
}

// read records that Azure was asked for the disk, and what it answered; found is nil if it did not.
// An answer counts as a change if it differs from what the driver has used until now.
func (s *Step) read(in Input, found *provisioner.Disk) {
	at := metav1.NewTime(in.Job.Ended)
	if found == nil {
		reading := &apiv1.DiskReading{}
		if s.Status.Disk != nil {
			reading = s.Status.Disk.DeepCopy()
		}
		reading.ReadTime = at
		s.Status.Disk = reading
		return
	}
	before := used(&apiv1.AzVolume{Spec: in.Volume.Spec, Status: s.Status})
	after := values{
		skuName:       found.SKUName,
		shares:        max(found.MaxShares, 1),
		zone:          found.Zone,
		encryptionSet: strings.ToLower(found.DiskEncryptionSetID),
		sizeBytes:     found.SizeBytes,
	}
	reading := &apiv1.DiskReading{
		ReadTime:            at,
		SKUName:             found.SKUName,
		MaxShares:           after.shares,
		Zone:                found.Zone,
		DiskEncryptionSetID: found.DiskEncryptionSetID,
		UnrecordedVMs:       unrecorded(in, found.AttachedTo),
	}
	if s.Status.Disk != nil {
		reading.ChangedTime = s.Status.Disk.ChangedTime
	}
	if after != before {
		reading.ChangedTime = &at
	}
	s.Status.Disk, s.Status.SizeBytes = reading, found.SizeBytes
	s.compare(in)
}

// readWithChange records the disk as a job found it that changed the disk, if there is anything to
// record.
func (s *Step) readWithChange(in Input, found *provisioner.Disk) {
	v := &apiv1.AzVolume{Spec: in.Volume.Spec, Status: s.Status}
	if s.Status.Disk != nil || differences(v, found) != "" || len(unrecorded(in, found.AttachedTo)) > 0 {
		s.read(in, found)
	}
}

// Settled reports whether the driver neither changes the disk nor is going to: a disk that differs
// from its record was then changed outside the driver.
func Settled(v *apiv1.AzVolume) bool {
	return !UpdateUncertain(&v.Status) && !wanted(v).any()
}

// ChangedOutside returns what the disk of a settled volume has of the settings that its record
// names, and reports whether the two differ. found was read after the volume.
func ChangedOutside(v *apiv1.AzVolume, found *provisioner.Disk) (has apiv1.DiskSettings, changed bool) {
	recorded := v.Status.Applied.DiskSettings
	has = seen(recorded, found)
	back := provisioner.DiskChange{From: provisioner.DiskSettings(has), To: provisioner.DiskSettings(recorded)}
	return has, !equality.Semantic.DeepEqual(back.Apply(found.DiskSettings), found.DiskSettings)
}

// values are what a request to attach the disk is made from.
type values struct {
	skuName, zone, encryptionSet string
	shares                       int32
	sizeBytes                    int64
}

// used returns the values that the driver uses now.
func used(v *apiv1.AzVolume) values {
	u := values{
		skuName:       SKU(v),
		shares:        v.Shares(),
		zone:          v.Spec.Disk.Zone,
		encryptionSet: strings.ToLower(EncryptionSet(v)),
		sizeBytes:     v.Status.SizeBytes,
	}
	if d := v.Status.Disk; d != nil && d.MaxShares > 0 {
		u.zone = d.Zone
	}
	return u
}

// mostUnrecorded is how many VMs a status takes. Azure attaches a disk to 15 at most.
const mostUnrecorded = 64

// unrecorded returns the VMs that have the disk and that no attachment of the volume names.
func unrecorded(in Input, attachedTo []string) []string {
	var vms []string
	for _, vm := range attachedTo {
		names := func(a *apiv1.AzVolumeAttachment) bool { return strings.EqualFold(a.Status.VMID, vm) }
		if !slices.ContainsFunc(in.Attachments, names) {
			vms = append(vms, vm)
		}
	}
	return vms[:min(len(vms), mostUnrecorded)]
}

// compare sets the condition that says in what the disk differs from its record.
func (s *Step) compare(in Input) {
	v := &apiv1.AzVolume{Spec: in.Volume.Spec, Status: s.Status}
	d := s.Status.Disk
	message := differences(v, &provisioner.Disk{
		Zone:                  d.Zone,
		MaxShares:             d.MaxShares,
		DiskSettings:          provisioner.DiskSettings{SKUName: d.SKUName},
		ImmutableDiskSettings: provisioner.ImmutableDiskSettings{DiskEncryptionSetID: d.DiskEncryptionSetID},
	})
	status, reason := metav1.ConditionFalse, apiv1.ReasonDiskChanged
	if message == "" {
		if !meta.IsStatusConditionFalse(s.Status.Conditions, apiv1.VolumeConditionDiskAsRecorded) {
			return
		}
		status, reason = metav1.ConditionTrue, apiv1.ReasonDiskAsRecorded
	}
	message = operation.Shorten(message)
	s.Reason, s.Message = reason, message
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type:               apiv1.VolumeConditionDiskAsRecorded,
		Status:             status,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: in.Volume.Generation,
		LastTransitionTime: metav1.NewTime(in.Now),
	})
}

// differences says in what a disk differs from its record.
func differences(v *apiv1.AzVolume, found *provisioner.Disk) string {
	var all []string
	add := func(name, is, recorded string) {
		if !strings.EqualFold(is, recorded) {
			all = append(all, fmt.Sprintf("%s is %s, recorded as %s", name, cmp.Or(is, "not set"), cmp.Or(recorded, "not set")))
		}
	}
	add("the SKU", found.SKUName, recordedSKU(v))
	add("maxShares", fmt.Sprint(max(found.MaxShares, 1)), fmt.Sprint(max(v.Spec.Disk.MaxShares, 1)))
	add("the zone", found.Zone, v.Spec.Disk.Zone)
	add("the disk encryption set", found.DiskEncryptionSetID, v.Spec.Disk.DiskEncryptionSetID)
	if len(all) == 0 {
		return ""
	}
	return "the disk was changed outside the driver, which uses the disk as it is: " + strings.Join(all, "; ")
}
