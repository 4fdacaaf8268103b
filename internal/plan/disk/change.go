package disk

import (
	"k8s.io/apimachinery/pkg/api/equality"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// wants are the parts of the spec that differ from the disk. They are sent to Azure in one call,
// and Azure may refuse each of them alone.
type wants struct {
	capacity, settings bool
	// alone says that Azure accepts them only while the disk is attached nowhere;
	// settingsAlone says so of the settings.
	alone, settingsAlone bool
}

func wanted(v *apiv1.AzVolume) wants {
	w := wants{capacity: v.Spec.CapacityBytes > v.Status.SizeBytes}
	applied := v.Status.Applied
	w.settings = applied == nil || !equality.Semantic.DeepEqual(v.Spec.Disk.DiskSettings, applied.DiskSettings)
	if v.Shares() > 1 && applied != nil {
		w.settingsAlone = alone(v.Spec.Disk.DiskSettings, applied.DiskSettings)
	}
	w.alone = w.settingsAlone || w.capacity && v.Shares() > 1
	return w
}

func (w wants) any() bool { return w.capacity || w.settings }

// ChangesAlone reports whether the disk can be brought to the spec only while it is attached
// nowhere: Azure changes neither size nor SKU nor tier of a shared disk that is attached. Sources:
// https://learn.microsoft.com/azure/virtual-machines/disks-shared and .../disks-change-performance
func ChangesAlone(v *apiv1.AzVolume) bool { return wanted(v).alone }

// String names the parts.
func (w wants) String() string {
	switch {
	case w.capacity && w.settings:
		return "size and parameters"
	case w.capacity:
		return "size"
	default:
		return "parameters"
	}
}

// Change is the change of a disk that Azure is asked for, in two parts that are sent in one call;
// Azure may refuse each of them alone.
type Change struct {
	// SizeBytes is the size to grow to; 0 to leave the size unchanged.
	SizeBytes int64
	// Settings are the other changes; nil for none.
	Settings *provisioner.DiskChange
	// Applied are the settings of the disk after Settings are applied; nil if they are not changed.
	Applied *apiv1.AppliedSettings
	// Before are the settings that the disk has now.
	Before *apiv1.AppliedSettings
}

// All returns both parts as one change.
func (c Change) All() provisioner.DiskChange {
	var all provisioner.DiskChange
	if c.Settings != nil {
		all = *c.Settings
	}
	all.SizeBytes = c.SizeBytes
	return all
}

// ChangeOf returns what to change of a disk, given the volume and the disk as they have just been
// read. A part that Azure accepts only while the disk is attached nowhere is omitted while the disk
// is attached, or about to be: it waits, or gets a job of its own. If an earlier change of the
// volume was uncertain when the job began, the settings that the disk has count, and not the record
// of them.
func ChangeOf(v *apiv1.AzVolume, disk *provisioner.Disk, uncertain bool) Change {
	var c Change
	attached := v.Shares() > 1 && (len(disk.AttachedTo) > 0 || ownership.HasPrimary(v, nil))
	if v.Spec.CapacityBytes > disk.SizeBytes && !attached {
		c.SizeBytes = v.Spec.CapacityBytes
	}
	asked, differs := *v.Spec.Disk.DiskSettings.DeepCopy(), wanted(v).settings
	switch c.Before = v.Status.Applied; {
	case c.Before == nil:
		c.Before = &apiv1.AppliedSettings{Generation: v.Generation, DiskSettings: seen(asked, disk)}
	case uncertain:
		c.Before = &apiv1.AppliedSettings{Generation: c.Before.Generation, DiskSettings: seen(asked, disk)}
		differs = differs || !equality.Semantic.DeepEqual(asked, c.Before.DiskSettings)
	}
	learnt := c.learn(asked, disk) || uncertain
	grows := attached && v.Spec.CapacityBytes > disk.SizeBytes && v.Spec.Disk.IOPSPerGiB > 0 // the IOPS are of the larger disk
	if !differs || grows || attached && alone(asked, c.Before.DiskSettings) {
		if learnt {
			c.Applied = c.Before
		}
		return c
	}
	c.Applied = &apiv1.AppliedSettings{Generation: v.Generation, DiskSettings: asked}
	// A change that a user made at Azure since then is not undone, unless the spec wants another
	// value now.
	change := provisioner.DiskChange{From: provisioner.DiskSettings(c.Before.DiskSettings), To: provisioner.DiskSettings(asked)}
	if !equality.Semantic.DeepEqual(change.Apply(disk.DiskSettings), disk.DiskSettings) {
		c.Settings = &change
	}
	return c
}

// alone reports whether settings differ in what Azure changes of a shared disk only while the disk
// is attached nowhere.
func alone(to, from apiv1.DiskSettings) bool {
	return to.SKUName != from.SKUName || to.Tier != from.Tier
}

// learn records SKU and tier that are requested and that the disk already has, by a call whose
// answer was lost. If they were reverted with other parts that are refused, the record would not
// match the disk. It reports whether there was anything to record.
func (c *Change) learn(asked apiv1.DiskSettings, disk *provisioner.Disk) bool {
	has := c.Before.DeepCopy()
	if disk.SKUName == asked.SKUName {
		has.SKUName = asked.SKUName
	}
	if disk.Tier == asked.Tier {
		has.Tier = asked.Tier
	}
	learnt := alone(has.DiskSettings, c.Before.DiskSettings)
	c.Before = has
	return learnt
}

// seen has the disk's values of the settings that the spec names. It replaces a missing record of
// the applied settings.
func seen(named apiv1.DiskSettings, disk *provisioner.Disk) apiv1.DiskSettings {
	return apiv1.DiskSettings(disk.Named(provisioner.DiskSettings(named)))
}
