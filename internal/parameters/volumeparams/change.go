package volumeparams

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Change has the parameters of a VolumeAttributesClass, which ParseChange has checked. What the
// class does not name remains unchanged.
type Change struct {
	// given is by the names in the table.
	given map[string]string
}

// changes has the rows of the StorageClass parameters that can be changed, with their effect on an
// existing disk, and the parameters that only an existing disk can have.
var changes = append(table.Changeable(ignoredByV1),
	paramtable.Text(removeTagsKey, "names of tags, separated by commas or tagValueDelimiter", "",
		func(p *Parameters, v string) { p.removeTags = v }).
		About("Removes the tags that it names from the disk, also those that others have set at Azure. Names are compared without regard to case. "+
			"The driver's own tags cannot be named.", unknownToV1))

const removeTagsKey = "removeTags"

// ignoredByV1 says how the V1 driver treats a parameter in a VolumeAttributesClass.
func ignoredByV1(k key) string {
	switch {
	case strings.Contains(k.Name, "/"), k.Name == "skuName", k.Name == iopsKey, k.Name == "diskMBpsReadWrite":
		return ""
	case k.V1 == unknownToV1:
		return unknownToV1
	default:
		return "Is accepted and ignored."
	}
}

// MutableKeys returns every parameter that ParseChange knows, for the reference documentation.
func MutableKeys() paramtable.Table[Parameters] { return changes }

// ParseChange reads the parameters of a VolumeAttributesClass. An empty value counts as not given.
// The error is an InvalidArgument that lists every fault: unknown parameters, parameters that
// cannot be changed, and values that are not allowed.
func ParseChange(raw map[string]string) (Change, error) {
	c := Change{given: map[string]string{}}
	var faults []string
	read := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !changes.Known(name) && (table.Known(name) || isDeviceSetting(name)) {
			faults = append(faults, fmt.Sprintf(
				"parameter %s (value %q) cannot be changed once the disk exists; those that can: %s", name, raw[name],
				changeable()))
			continue
		}
		read[name] = raw[name]
		if raw[name] != "" {
			c.given[changes.Canonical(name)] = raw[name]
		}
	}
	p := Parameters{tagDelimiter: ","}
	more, _ := changes.Read(&p, read)
	faults = append(faults, more...)
	faults = append(faults, p.bothIOPS()...)
	tags := map[string]string{}
	faults = append(faults, paramtable.Tags(tags, p.tags, p.tagDelimiter, func(s string) string { return s })...)
	for name, value := range tags {
		if hasTemplate(value) {
			faults = append(faults, paramtable.Fault("tags", name+"="+value,
				"templates of labels and annotations in a StorageClass only"))
		}
	}
	set := slices.Sorted(maps.Keys(tags))
	removed, more := paramtable.TagNames(removeTagsKey, p.removeTags, p.tagDelimiter)
	faults = append(faults, more...)
	for key, names := range map[string][]string{"tags": set, removeTagsKey: removed} {
		for _, name := range names {
			if reserved(name) {
				faults = append(faults, paramtable.Fault(key, name, "names other than those that the driver sets itself"))
			}
		}
	}
	for _, name := range removed {
		if provisioner.HasTag(set, name) {
			faults = append(faults, paramtable.Fault(removeTagsKey, name, "names that tags does not set"))
		}
	}
	slices.Sort(faults)
	return c, paramtable.Invalid(faults)
}

// names reports whether the change names a parameter.
func (c Change) names(parameter string) bool { return c.given[parameter] != "" }

func changeable() string {
	var names []string
	for _, k := range changes {
		if !strings.Contains(k.Name, "/") {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, ", ")
}

// reserved reports whether the driver uses the tag to recognise its disks, to store for which volume the disk was
// created, or to attach it with the write accelerator.
func reserved(tag string) bool {
	own := []string{tagCreatedBy, TagClaimName, TagClaimNamespace, TagVolumeName, tagWriteAccelerator}
	return paramtable.IsOwnTag(tag) || slices.ContainsFunc(own, func(o string) bool { return strings.EqualFold(o, tag) })
}

// ParseWith reads the parameters of a StorageClass overridden by a VolumeAttributesClass; the tags
// of both are set. The error is an InvalidArgument that lists the faults of the
// VolumeAttributesClass, or, if it has none, the faults of both together.
func ParseWith(class, attributes map[string]string) (Parameters, error) {
	if len(attributes) == 0 {
		return Parse(class)
	}
	change, err := ParseChange(attributes)
	if err != nil {
		return Parameters{}, err
	}
	over := maps.Clone(change.given)
	maps.DeleteFunc(over, func(name, _ string) bool {
		return name == "tags" || name == removeTagsKey || name == "tagValueDelimiter" || strings.Contains(name, "/")
	})
	// The two say the same in two ways: that of the VolumeAttributesClass counts.
	switch {
	case change.names(iopsPerGBKey):
		over[iopsKey] = ""
	case change.names(iopsKey):
		over[iopsPerGBKey] = ""
	}
	p, err := Parse(Overlay(class, over))
	if err != nil {
		return p, err
	}
	return p, p.changeTags(change)
}

// changeTags adds the tags of a class to the disk's tags, replaces tags of the same name, and
// removes the tags that the class removes.
func (p *Parameters) changeTags(c Change) error {
	class := *p
	class.tags, class.removeTags, class.tagDelimiter = "", "", ","
	changes.Read(&class, c.given)
	set := map[string]string{}
	faults := paramtable.Tags(set, class.tags, class.tagDelimiter, class.fill)
	if removed, _ := paramtable.TagNames(removeTagsKey, class.removeTags, class.tagDelimiter); len(removed) > 0 {
		p.RemovedTags = removed
	}
	p.RemovedTags = slices.DeleteFunc(slices.Clone(p.RemovedTags), func(name string) bool {
		return provisioner.HasTag(slices.Collect(maps.Keys(set)), name)
	})
	tags := map[string]string{}
	maps.Copy(tags, p.Tags)
	maps.DeleteFunc(tags, func(name, _ string) bool { return provisioner.HasTag(p.RemovedTags, name) })
	for name, value := range set {
		provisioner.SetTag(tags, name, value)
	}
	p.dropTemplates(append(slices.Collect(maps.Keys(set)), p.RemovedTags...))
	// Others may have given the disk more tags: a class that adds none is not to blame.
	before := len(p.Tags)
	if p.Tags = tags; len(tags) > max(MaxTags, before) {
		faults = append(faults, fmt.Sprintf("parameter tags: the disk would have %d tags; allowed: %d", len(tags), MaxTags))
	}
	return paramtable.Invalid(faults)
}

// With returns the parameters of an existing disk of the size after a change. It removes the
// parameters that belong only to the SKU or the policy that the change replaces. The error is an
// InvalidArgument that lists what Azure always refuses: conversions between certain SKUs, and
// parameters that contradict each other. A contradiction that existed before and that the change
// does not concern is not a fault.
func (p Parameters) With(c Change, sizeBytes int64) (Parameters, error) {
	before := p
	changes.Read(&p, c.given)
	if !premium(p.SKU()) && !c.names("tier") {
		p.Tier = ""
	}
	if provisioned(p.SKU()) && !c.names(cachingKey) {
		p.CachingMode = CachingNone // from the next attach on
	}
	switch {
	case c.names(iopsPerGBKey):
		p.DiskIOPSReadWrite = nil
		p.RaiseIOPS(sizeBytes)
	case c.names(iopsKey):
		p.IOPSPerGiB = 0
	}
	if p.NetworkAccessPolicy != allowPrivate && !c.names("diskAccessID") {
		p.DiskAccessID = ""
	}
	faults := before.conversion(&p)
	known := append(before.contradictions(), before.sizeContradictions(sizeBytes)...)
	for _, f := range append(p.contradictions(), p.sizeContradictions(sizeBytes)...) {
		if !slices.Contains(known, f) {
			faults = append(faults, f)
		}
	}
	if c.names(cachingKey) {
		p.ModifiedCachingMode = p.CachingMode
		if p.CachingMode != CachingNone && sizeBytes >= noCachingFromGiB*GiB {
			faults = append(faults, paramtable.Fault(cachingKey, p.CachingMode,
				fmt.Sprintf("%s from %d GiB on", CachingNone, noCachingFromGiB)))
		}
	}
	if err := p.changeTags(c); err != nil {
		faults = append(faults, err.Error())
	}
	return p, paramtable.Invalid(faults)
}

// conversion returns why a disk cannot become one of the SKU that it has after a change.
// Source: https://learn.microsoft.com/azure/virtual-machines/disks-convert-types
func (p *Parameters) conversion(after *Parameters) []string {
	from, to := p.SKU(), after.SKU()
	refuse := func(allowed string) []string {
		return []string{paramtable.Fault("skuName", to, allowed)}
	}
	switch {
	case from == to:
		return nil
	case from == UltraSSDLRS || to == UltraSSDLRS:
		return refuse(from + " only: a disk can be converted neither to nor from " + UltraSSDLRS)
	case from == PremiumV2LRS:
		return refuse(from + " only: a disk cannot be converted back from it")
	case strings.HasSuffix(from, "_ZRS") != strings.HasSuffix(to, "_ZRS"):
		return refuse("a SKU with the redundancy of " + from)
	case to == PremiumV2LRS && p.BurstingEnabled && after.BurstingEnabled:
		return refuse("another SKU as long as enableBursting is true")
	case to == PremiumV2LRS && p.DiskEncryptionType == "EncryptionAtRestWithPlatformAndCustomerKeys":
		return refuse("another SKU for a disk of double encryption")
	}
	return nil
}
