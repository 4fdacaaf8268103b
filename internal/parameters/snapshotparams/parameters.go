// Package snapshotparams parses the parameters of a VolumeSnapshotClass. It is as strict as package
// volumeparams: an unknown parameter, a value that is not allowed and parameters that contradict
// each other are errors that name the parameter, the value and what is allowed. One error lists all
// faults.
//
// Keys are compared without regard to case, and every parameter of the V1 driver is known, so that
// its VolumeSnapshotClasses continue to work. The package does no I/O. Its caller is the CSI
// controller server.
package snapshotparams

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Parameters are the parameters of a snapshot after Parse. A zero value means that the parameter
// was not given.
type Parameters struct {
	// SnapshotSpec has the parameters of the snapshot, and its tags with the tags that the driver
	// adds. The caller sets the ID, the source, and the location if it was not given.
	provisioner.SnapshotSpec
	// ResourceGroup and SubscriptionID of the snapshot.
	ResourceGroup, SubscriptionID string
	// SnapshotNamespace and SnapshotName come from the snapshotter, not from the class.
	SnapshotNamespace, SnapshotName string
	// WithoutEffect are the parameters that are known and have no effect in this driver.
	WithoutEffect []string

	tags, tagDelimiter string
}

// Tag keys that the driver sets on the snapshots that it creates, in addition to the tags of the
// class.
const (
	tagCreatedBy         = "k8s-azure-created-by"
	tagSnapshotName      = "kubernetes.io-created-for-snapshot-name"
	tagSnapshotNamespace = "kubernetes.io-created-for-snapshot-namespace"
	createdBy            = "kubernetes-azure-dd"
)

const allowPrivate = "AllowPrivate"

var table = paramtable.Table[Parameters]{
	{Name: "resourceGroup", Allowed: "1 to 90 letters, digits, _, -, ., ( and ), with no . first", Default: "the source disk's",
		Check: paramtable.IsResourceGroup, Set: func(p *Parameters, v string) { p.ResourceGroup = v }},
	{Name: "subscriptionID", Allowed: "a subscription ID, which is a GUID", Default: "the source disk's",
		Check: paramtable.IsSubscription, Set: func(p *Parameters, v string) { p.SubscriptionID = v }},
	{Name: "location", Allowed: "a region, as in eastus", Default: "the source disk's", Check: paramtable.IsLocation,
		Set:    func(p *Parameters, v string) { p.Location = paramtable.Location(v) },
		Effect: "another region than the disk's makes a copy there", V1: "compares it with the cluster's region"},
	{Name: "incremental", Allowed: "true, false (in any case)", Default: "true", Check: paramtable.IsBoolean,
		Set:    func(p *Parameters, v string) { p.Incremental, _ = strconv.ParseBool(strings.ToLower(v)) },
		Effect: "holds what changed since the snapshot before", V1: "takes everything but the exact `false` for true"},
	paramtable.Text("tags", "key=value, separated by commas or tagValueDelimiter; at most 43", "",
		func(p *Parameters, v string) { p.tags = v }),
	{Name: "tagValueDelimiter", Allowed: "a text that separates tags", Default: ",", Check: paramtable.IsTagDelimiter,
		Set: func(p *Parameters, v string) { p.tagDelimiter = v }},
	paramtable.OneOf("networkAccessPolicy", []string{"AllowAll", "DenyAll", allowPrivate}, "Azure's",
		func(p *Parameters, v string) { p.NetworkAccessPolicy = v }),
	paramtable.OneOf("publicNetworkAccess", []string{"Enabled", "Disabled"}, "Azure's",
		func(p *Parameters, v string) { p.PublicNetworkAccess = v }),
	paramtable.ResourceID("diskAccessID", func(p *Parameters, v string) { p.DiskAccessID = v }).
		About("required with networkAccessPolicy AllowPrivate, and allowed only with it", "does not know it"),
	paramtable.OneOf("dataAccessAuthMode", []string{"None", "AzureActiveDirectory"}, "Azure's",
		func(p *Parameters, v string) { p.DataAccessAuthMode = v }),
	paramtable.Integer("instantAccessDurationMinutes", 60, 300, "no instant access",
		func(p *Parameters, v int64) { p.InstantAccessMinutes = v }).
		About("snapshots of UltraSSD_LRS and PremiumV2_LRS disks only: usable at once, for so long", ""),
	paramtable.Text("csi.storage.k8s.io/volumesnapshot/name", "set by the snapshotter", "",
		func(p *Parameters, v string) { p.SnapshotName = v }).
		About("becomes the tag "+tagSnapshotName, ""),
	paramtable.Text("csi.storage.k8s.io/volumesnapshot/namespace", "set by the snapshotter", "",
		func(p *Parameters, v string) { p.SnapshotNamespace = v }).
		About("becomes the tag "+tagSnapshotNamespace, ""),
	// Parameters of the V1 driver without effect in this driver.
	{Name: "csi.storage.k8s.io/volumesnapshotcontent/name", Allowed: "set by the snapshotter"},
	{Name: "userAgent", Allowed: "any text"},
}

// Keys returns every parameter that Parse knows, for the reference documentation.
func Keys() paramtable.Table[Parameters] { return table }

// Parse reads parameters. The error is an InvalidArgument that lists every fault.
func Parse(raw map[string]string) (Parameters, error) {
	p := Parameters{SnapshotSpec: provisioner.SnapshotSpec{Incremental: true}, tagDelimiter: ","}
	faults, withoutEffect := table.Read(&p, raw)
	p.WithoutEffect = withoutEffect
	faults = append(faults, p.parseTags()...)
	if (p.NetworkAccessPolicy == allowPrivate) != (p.DiskAccessID != "") {
		faults = append(faults, paramtable.Fault("diskAccessID", p.DiskAccessID,
			"a disk access ID if and only if networkAccessPolicy is AllowPrivate, and it is "+
				strconv.Quote(p.NetworkAccessPolicy)))
	}
	return p, paramtable.Invalid(faults)
}

// maxTags is the number of tags that Azure allows on a resource, less those with which the driver
// marks the members of a group and the steps of a copy.
const maxTags = paramtable.MostTags - 4

// AddTags adds tags that the parameters do not name. The error is an InvalidArgument if there are
// too many.
func (p *Parameters) AddTags(more map[string]string) error {
	if paramtable.AddTags(p.Tags, more); len(p.Tags) > maxTags {
		return paramtable.Invalid([]string{fmt.Sprintf(
			"parameter tags: the snapshot would have %d tags with those that the driver adds; allowed: %d", len(p.Tags),
			maxTags)})
	}
	return nil
}

// parseTags fills Tags and returns the faults.
func (p *Parameters) parseTags() []string {
	p.Tags = map[string]string{tagCreatedBy: createdBy}
	for tag, value := range map[string]string{tagSnapshotName: p.SnapshotName, tagSnapshotNamespace: p.SnapshotNamespace} {
		if value != "" {
			p.Tags[tag] = value
		}
	}
	return paramtable.Tags(p.Tags, p.tags, p.tagDelimiter, func(v string) string { return v })
}

// NameSnapshot returns the name of the snapshot for the name in the request, corrected if Azure
// would refuse it.
func NameSnapshot(name string) string { return paramtable.ResourceName(name, "snapshot") }

// Check returns an InvalidArgument for parameters that a snapshot of the disk cannot have.
func (p *Parameters) Check(source provisioner.Disk) error {
	var faults []string
	provisioned := source.SKUName == "UltraSSD_LRS" || source.SKUName == "PremiumV2_LRS"
	otherRegion := p.InAnotherRegion(source)
	if !p.Incremental && provisioned {
		faults = append(faults, paramtable.Fault("incremental", false, "true for a disk of SKU "+source.SKUName))
	}
	if !p.Incremental && otherRegion {
		faults = append(faults, paramtable.Fault("incremental", false,
			fmt.Sprintf("true for a snapshot in %s of a disk in %s", p.Location, source.Location)))
	}
	if p.InstantAccessMinutes > 0 && !provisioned {
		faults = append(faults, paramtable.Fault("instantAccessDurationMinutes", p.InstantAccessMinutes,
			"only for disks of SKU UltraSSD_LRS or PremiumV2_LRS, not "+source.SKUName))
	}
	if p.InstantAccessMinutes > 0 && otherRegion {
		faults = append(faults, paramtable.Fault("instantAccessDurationMinutes", p.InstantAccessMinutes,
			fmt.Sprintf("only for a snapshot in the disk's own region %s, not %s: a copy is usable when it is complete",
				source.Location, p.Location)))
	}
	return paramtable.Invalid(faults)
}

// InAnotherRegion reports whether the snapshot is created in another region than its source.
func (p *Parameters) InAnotherRegion(source provisioner.Disk) bool {
	return p.Location != "" && p.Location != paramtable.Location(source.Location)
}
