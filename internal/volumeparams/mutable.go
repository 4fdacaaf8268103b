package volumeparams

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/paramtable"
)

// Change has the parameters of a VolumeAttributesClass: those that can be changed while the disk exists. nil means that
// the class does not name the parameter, and that it remains unchanged.
type Change struct {
	SKUName                             *string
	DiskIOPSReadWrite                   *int64
	DiskMBpsReadWrite                   *int64
	DiskIOPSReadOnly                    *int64
	DiskMBpsReadOnly                    *int64
	Tier                                *string
	EnableBursting                      *bool
	NetworkAccessPolicy                 *string
	PublicNetworkAccess                 *string
	DiskAccessID                        *string
	tags, tagDelimiter                  string
	claimNamespace, claimName, volumeID string
}

// volumeUIDPrefix starts the names of the tags by which the driver recognises its disks.
const volumeUIDPrefix = "disk.csi.azure.com-"

var changes = changeTable()

// changeTable has the rows of the StorageClass parameters, with their effect on a disk that exists.
func changeTable() paramtable.Table[Change] {
	like := func(name, effect string, set func(*Change, string)) paramtable.Key[Change] {
		i := slices.IndexFunc(table, func(k key) bool { return k.Name == name })
		k := table[i]
		return paramtable.Key[Change]{Name: k.Name, Aliases: k.Aliases, Allowed: k.Allowed, Check: k.Check, Set: set}.About(effect, ignoredByV1(k))
	}
	text := func(field func(*Change) **string) func(*Change, string) {
		return func(c *Change, v string) { *field(c) = &v }
	}
	number := func(field func(*Change) **int64) func(*Change, string) {
		return func(c *Change, v string) {
			n := parseInt(v)
			*field(c) = &n
		}
	}
	return paramtable.Table[Change]{
		like("skuName", "Converts the disk. Not to or from UltraSSD_LRS, not from PremiumV2_LRS, and not between LRS and ZRS.", text(func(c *Change) **string { return &c.SKUName })),
		like("diskIOPSReadWrite", "Sets the IOPS of UltraSSD_LRS and PremiumV2_LRS, also in use.", number(func(c *Change) **int64 { return &c.DiskIOPSReadWrite })),
		like("diskMBpsReadWrite", "Sets the throughput of UltraSSD_LRS and PremiumV2_LRS, also in use.", number(func(c *Change) **int64 { return &c.DiskMBpsReadWrite })),
		like("diskIOPSReadOnly", "Sets the IOPS of the VMs that share an UltraSSD_LRS or PremiumV2_LRS disk for reading only.", number(func(c *Change) **int64 { return &c.DiskIOPSReadOnly })),
		like("diskMBpsReadOnly", "Sets the throughput of the VMs that share an UltraSSD_LRS or PremiumV2_LRS disk for reading only.", number(func(c *Change) **int64 { return &c.DiskMBpsReadOnly })),
		like("tier", "Sets the performance tier of Premium_LRS and Premium_ZRS, also in use unless the disk is shared.",
			func(c *Change, v string) { v = strings.ToUpper(v); c.Tier = &v }),
		like("enableBursting", "Turns on-demand bursting of Premium_LRS and Premium_ZRS above 512 GiB on, while the disk is not attached, or off, 12 hours later at the earliest.",
			func(c *Change, v string) { on, _ := strconv.ParseBool(strings.ToLower(v)); c.EnableBursting = &on }),
		like("networkAccessPolicy", "Sets from which networks the disk can be exported. AllowPrivate needs diskAccessID; another policy removes it.", text(func(c *Change) **string { return &c.NetworkAccessPolicy })),
		like("publicNetworkAccess", "Sets whether the disk can be exported over the internet.", text(func(c *Change) **string { return &c.PublicNetworkAccess })),
		like("diskAccessID", "Sets the disk access resource; only with networkAccessPolicy AllowPrivate.", text(func(c *Change) **string { return &c.DiskAccessID })),
		like("tags", "Sets the tags that it names. Other tags remain unchanged, and the driver's own tags cannot be named.", func(c *Change, v string) { c.tags = v }),
		like("tagValueDelimiter", "What separates the tags.", func(c *Change, v string) { c.tagDelimiter = v }),
		like(claimNameKey, "Fills the templates in tags.", func(c *Change, v string) { c.claimName = v }),
		like(claimNamespaceKey, "Fills the templates in tags.", func(c *Change, v string) { c.claimNamespace = v }),
		like(volumeNameKey, "Fills the templates in tags.", func(c *Change, v string) { c.volumeID = v }),
	}
}

// ignoredByV1 says how the V1 driver treats a parameter in a VolumeAttributesClass.
func ignoredByV1(k key) string {
	switch {
	case strings.Contains(k.Name, "/"), k.Name == "skuName", k.Name == "diskIOPSReadWrite", k.Name == "diskMBpsReadWrite":
		return ""
	case k.V1 == unknownToV1:
		return unknownToV1
	default:
		return "Is accepted and ignored."
	}
}

// MutableKeys returns every parameter that ParseChange knows, for the reference documentation.
func MutableKeys() []paramtable.Doc { return changes.Docs() }

// ParseChange reads the parameters of a VolumeAttributesClass. An empty value counts as not given. The error is an
// InvalidArgument that lists every fault: unknown parameters, those that cannot be changed, and values that are not
// allowed.
func ParseChange(raw map[string]string) (Change, error) {
	c := Change{tagDelimiter: ","}
	var faults []string
	read := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !changes.Known(name) && (table.Known(name) || isDeviceSetting(name)) {
			faults = append(faults, fmt.Sprintf("parameter %s (value %q) cannot be changed once the disk exists; those that can: %s", name, raw[name], changeable()))
			continue
		}
		read[name] = raw[name]
	}
	more, _ := changes.Read(&c, read)
	faults = append(faults, more...)
	tags := map[string]string{}
	faults = append(faults, paramtable.Tags(tags, c.tags, c.tagDelimiter, func(s string) string { return s })...)
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		if reserved(name) {
			faults = append(faults, paramtable.Fault("tags", name, "names other than those that the driver sets itself"))
		}
	}
	return c, paramtable.Invalid(faults)
}

func changeable() string {
	var names []string
	for _, k := range changes {
		if !strings.Contains(k.Name, "/") {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, ", ")
}

// reserved says that the driver uses the tag to recognise its disks, or to store for which volume the disk was created.
func reserved(tag string) bool {
	own := []string{TagCreatedBy, TagClaimName, TagClaimNamespace, TagVolumeName, TagWriteAccelerator}
	return strings.HasPrefix(strings.ToLower(tag), volumeUIDPrefix) || slices.ContainsFunc(own, func(o string) bool { return strings.EqualFold(o, tag) })
}

// ParseWith reads the parameters of a StorageClass overridden by those of a VolumeAttributesClass; the tags of both are
// set. The error is an InvalidArgument that lists the faults of the VolumeAttributesClass, or, if it has none, those of
// both together.
func ParseWith(class, attributes map[string]string) (Parameters, error) {
	if len(attributes) == 0 {
		return Parse(class)
	}
	change, err := ParseChange(attributes)
	if err != nil {
		return Parameters{}, err
	}
	over := map[string]string{}
	for name, value := range attributes {
		tags := strings.EqualFold(name, "tags") || strings.EqualFold(name, "tagValueDelimiter")
		if value != "" && !tags && !strings.Contains(name, "/") {
			over[name] = value
		}
	}
	p, err := Parse(Overlay(class, over))
	if err != nil {
		return p, err
	}
	return p, p.addTags(change)
}

// addTags adds the tags of a class to those of the disk and replaces those of the same name.
func (p *Parameters) addTags(c Change) error {
	named := *p
	named.ClaimName, named.ClaimNamespace, named.VolumeName = or(c.claimName, p.ClaimName), or(c.claimNamespace, p.ClaimNamespace), or(c.volumeID, p.VolumeName)
	p.Tags = maps.Clone(p.Tags)
	if p.Tags == nil {
		p.Tags = map[string]string{}
	}
	faults := paramtable.Tags(p.Tags, c.tags, c.tagDelimiter, named.fill)
	if len(p.Tags) > maxTags {
		faults = append(faults, fmt.Sprintf("parameter tags: the disk would have %d tags; allowed: %d", len(p.Tags), maxTags))
	}
	return paramtable.Invalid(faults)
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// With returns the parameters of an existing disk of the size after a change. It removes the parameters that belong
// only to the SKU or the policy that the change replaces. The error is an InvalidArgument that lists what Azure always
// refuses: conversions between certain SKUs, and parameters that contradict each other. A contradiction that existed
// before and that the change does not concern is not a fault.
func (p Parameters) With(c Change, sizeBytes int64) (Parameters, error) {
	before := p
	faults := p.conversion(c)
	set(&p.SKUName, c.SKUName)
	if !premium(p.SKU()) {
		p.Tier = ""
	}
	if provisioned(p.SKU()) {
		p.CachingMode = CachingNone // from the next attach on
	}
	set(&p.NetworkAccessPolicy, c.NetworkAccessPolicy)
	if p.NetworkAccessPolicy != allowPrivate {
		p.DiskAccessID = ""
	}
	set(&p.DiskAccessID, c.DiskAccessID)
	set(&p.PublicNetworkAccess, c.PublicNetworkAccess)
	set(&p.Tier, c.Tier)
	set(&p.EnableBursting, c.EnableBursting)
	for to, from := range map[**int64]*int64{
		&p.DiskIOPSReadWrite: c.DiskIOPSReadWrite, &p.DiskMBpsReadWrite: c.DiskMBpsReadWrite,
		&p.DiskIOPSReadOnly: c.DiskIOPSReadOnly, &p.DiskMBpsReadOnly: c.DiskMBpsReadOnly,
	} {
		if from != nil {
			*to = from
		}
	}
	known := append(before.contradictions(), before.sizeContradictions(sizeBytes)...)
	for _, f := range append(p.contradictions(), p.sizeContradictions(sizeBytes)...) {
		if !slices.Contains(known, f) {
			faults = append(faults, f)
		}
	}
	if err := p.addTags(c); err != nil {
		faults = append(faults, err.Error())
	}
	return p, paramtable.Invalid(faults)
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// conversion returns why a disk cannot become one of the SKU that the change names.
// Source: https://learn.microsoft.com/azure/virtual-machines/disks-convert-types
func (p *Parameters) conversion(c Change) []string {
	if c.SKUName == nil || *c.SKUName == p.SKU() {
		return nil
	}
	from, to := p.SKU(), *c.SKUName
	refuse := func(allowed string) []string {
		return []string{paramtable.Fault("skuName", to, allowed)}
	}
	switch {
	case from == UltraSSDLRS || to == UltraSSDLRS:
		return refuse(from + " only: a disk can be converted neither to nor from " + UltraSSDLRS)
	case from == PremiumV2LRS:
		return refuse(from + " only: a disk cannot be converted back from it")
	case strings.HasSuffix(from, "_ZRS") != strings.HasSuffix(to, "_ZRS"):
		return refuse("a SKU with the redundancy of " + from)
	case to == PremiumV2LRS && p.EnableBursting && (c.EnableBursting == nil || *c.EnableBursting):
		return refuse("another SKU as long as enableBursting is true")
	case to == PremiumV2LRS && p.DiskEncryptionType == "EncryptionAtRestWithPlatformAndCustomerKeys":
		return refuse("another SKU for a disk of double encryption")
	}
	return nil
}
