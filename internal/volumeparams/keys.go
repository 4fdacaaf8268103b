package volumeparams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Key documents one parameter.
type Key struct {
	// Name in its usual spelling.
	Name string
	// Aliases are other names of the same.
	Aliases []string
	// Allowed says which values are allowed.
	Allowed string
	// Default says what holds when it is not given.
	Default string
	// Effective is false for a parameter that is accepted and does nothing.
	Effective bool
}

// Keys returns every parameter that Parse knows, for the reference documentation.
func Keys() []Key {
	keys := make([]Key, 0, len(table))
	for _, k := range table {
		keys = append(keys, Key{Name: k.name, Aliases: k.aliases, Allowed: k.allowed, Default: k.fallback, Effective: k.set != nil})
	}
	return keys
}

type key struct {
	name     string
	aliases  []string
	allowed  string
	fallback string
	// check says whether a value is allowed; nil allows all.
	check func(string) bool
	// set stores a value that is allowed; nil for a parameter without effect.
	set func(*Parameters, string)
}

// apply stores value and returns "", or returns what is allowed.
func (k key) apply(p *Parameters, value string) string {
	if k.check != nil && !k.check(value) {
		return k.allowed
	}
	if k.set != nil {
		k.set(p, value)
	}
	return ""
}

const (
	claimNameKey      = "csi.storage.k8s.io/pvc/name"
	claimNamespaceKey = "csi.storage.k8s.io/pvc/namespace"
	volumeNameKey     = "csi.storage.k8s.io/pv/name"
)

var table = []key{
	oneOf("skuName", skuNames, StandardSSDLRS, func(p *Parameters, v string) { p.SKUName = v }, "storageAccountType"),
	oneOf("cachingMode", []string{CachingNone, CachingReadOnly, CachingReadWrite},
		"ReadOnly; None for shared disks, UltraSSD_LRS, PremiumV2_LRS and from 4096 GiB", func(p *Parameters, v string) { p.CachingMode = v }),
	{name: "fsType", allowed: "ext4, ext3, ext2, xfs, btrfs", fallback: "ext4",
		check: func(v string) bool {
			return v == "" || slices.Contains([]string{"ext4", "ext3", "ext2", "xfs", "btrfs"}, strings.ToLower(v))
		},
		set: func(p *Parameters, v string) { p.FSType = strings.ToLower(v) }},
	integer("maxShares", 1, 15, "1", func(p *Parameters, v int64) { p.MaxShares = int32(v) }),
	integer("maxMountReplicaCount", 0, 14, "maxShares - 1; 0 for multi-node access modes", func(p *Parameters, v int64) { n := int32(v); p.MaxMountReplicaCount = &n }),
	text("location", "a region, as in eastus", "the cluster's", func(p *Parameters, v string) { p.Location = strings.ToLower(strings.ReplaceAll(v, " ", "")) }),
	{name: "resourceGroup", allowed: "1 to 90 characters", fallback: "the cluster's",
		check: func(v string) bool { return len(v) <= 90 && !strings.ContainsAny(v, "/?#") }, set: func(p *Parameters, v string) { p.ResourceGroup = v }},
	{name: "subscriptionID", allowed: "a subscription ID", fallback: "the cluster's",
		check: func(v string) bool { return !strings.ContainsAny(v, "/?# ") }, set: func(p *Parameters, v string) { p.SubscriptionID = v }},
	integer("diskIOPSReadWrite", 1, 1<<31, "Azure's", func(p *Parameters, v int64) { p.DiskIOPSReadWrite = &v }),
	integer("diskMBpsReadWrite", 1, 1<<31, "Azure's", func(p *Parameters, v int64) { p.DiskMBpsReadWrite = &v }),
	{name: "logicalSectorSize", allowed: "512, 4096", fallback: "Azure's", check: func(v string) bool { return v == "512" || v == "4096" },
		set: func(p *Parameters, v string) {
			n := int32(4096)
			if v == "512" {
				n = 512
			}
			p.LogicalSectorSize = &n
		}},
	text("tags", "key=value, separated by commas or tagValueDelimiter", "", func(p *Parameters, v string) { p.tags = v }),
	{name: "tagValueDelimiter", allowed: "a text that separates tags", fallback: ",", check: func(v string) bool { return v != "" && v != "=" },
		set: func(p *Parameters, v string) { p.tagDelimiter = v }},
	text("diskName", "a name; ${pvc.metadata.name}, ${pvc.metadata.namespace} and ${pv.metadata.name} are replaced", "the volume's name", func(p *Parameters, v string) { p.DiskName = v }),
	resourceID("diskEncryptionSetID", func(p *Parameters, v string) { p.DiskEncryptionSetID = v }),
	oneOf("diskEncryptionType", []string{"EncryptionAtRestWithCustomerKey", "EncryptionAtRestWithPlatformAndCustomerKeys", "EncryptionAtRestWithPlatformKey"},
		"EncryptionAtRestWithCustomerKey if diskEncryptionSetID is set", func(p *Parameters, v string) { p.DiskEncryptionType = v }),
	boolean("writeAcceleratorEnabled", func(p *Parameters, v bool) { p.WriteAcceleratorEnabled = v }),
	oneOf("networkAccessPolicy", []string{"AllowAll", "DenyAll", "AllowPrivate"}, "DenyAll", func(p *Parameters, v string) { p.NetworkAccessPolicy = v }),
	oneOf("publicNetworkAccess", []string{"Enabled", "Disabled"}, "Disabled", func(p *Parameters, v string) { p.PublicNetworkAccess = v }),
	resourceID("diskAccessID", func(p *Parameters, v string) { p.DiskAccessID = v }),
	boolean("enableBursting", func(p *Parameters, v bool) { p.EnableBursting = v }),
	boolean("enablePerformancePlus", func(p *Parameters, v bool) { p.EnablePerformancePlus = v }),
	boolean("optimizedForFrequentAttach", func(p *Parameters, v bool) { p.OptimizedForFrequentAttach = v }),
	text(claimNameKey, "set by the provisioner", "", func(p *Parameters, v string) { p.ClaimName = v }),
	text(claimNamespaceKey, "set by the provisioner", "", func(p *Parameters, v string) { p.ClaimNamespace = v }),
	text(volumeNameKey, "set by the provisioner", "", func(p *Parameters, v string) { p.VolumeName = v }),
	// Known from V1 and without effect here.
	{name: "kind", allowed: "managed, dedicated, shared (all mean managed)", fallback: "managed",
		check: func(v string) bool {
			return slices.Contains([]string{"managed", "dedicated", "shared"}, strings.ToLower(v))
		}},
	{name: "perfProfile", allowed: "none, basic, advanced", fallback: "none",
		check: func(v string) bool { return slices.Contains([]string{"none", "basic", "advanced"}, strings.ToLower(v)) }},
	{name: "attachDiskInitialDelay", allowed: "a number of milliseconds", check: isInteger(0, 1<<31)},
	{name: "userAgent", allowed: "any text"},
	{name: "enableAsyncAttach", allowed: "true, false", check: isBoolean},
	{name: "zoned", allowed: "true, false", check: isBoolean},
}

func oneOf(name string, values []string, fallback string, set func(*Parameters, string), aliases ...string) key {
	return key{name: name, aliases: aliases, allowed: strings.Join(values, ", "), fallback: fallback, set: set,
		check: func(v string) bool { return v == "" || slices.Contains(values, v) }}
}

func text(name, allowed, fallback string, set func(*Parameters, string)) key {
	return key{name: name, allowed: allowed, fallback: fallback, set: set}
}

func integer(name string, low, high int64, fallback string, set func(*Parameters, int64)) key {
	allowed := fmt.Sprintf("a whole number from %d", low)
	if high < 1<<31 {
		allowed = fmt.Sprintf("a whole number from %d to %d", low, high)
	}
	return key{name: name, allowed: allowed, fallback: fallback, check: isInteger(low, high),
		set: func(p *Parameters, v string) {
			n, _ := strconv.ParseInt(v, 10, 64) // check has seen it
			set(p, n)
		}}
}

func boolean(name string, set func(*Parameters, bool)) key {
	return key{name: name, allowed: "true, false", fallback: "false", check: isBoolean,
		set: func(p *Parameters, v string) { set(p, strings.EqualFold(v, "true")) }}
}

func resourceID(name string, set func(*Parameters, string)) key {
	return key{name: name, allowed: "a resource ID that starts with /subscriptions/", set: set,
		check: func(v string) bool { return v == "" || strings.HasPrefix(strings.ToLower(v), "/subscriptions/") }}
}

func isInteger(low, high int64) func(string) bool {
	return func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n >= low && n <= high
	}
}

func isBoolean(v string) bool {
	return v == "" || strings.EqualFold(v, "true") || strings.EqualFold(v, "false")
}

func lookup(name string) (key, bool) {
	for _, k := range table {
		if strings.EqualFold(k.name, name) || slices.ContainsFunc(k.aliases, func(a string) bool { return strings.EqualFold(a, name) }) {
			return k, true
		}
	}
	return key{}, false
}

// unknown names the known parameter that is spelled most like name.
func unknown(name, value string) string {
	best, distance := "", 1<<30
	for _, k := range table {
		for _, candidate := range append([]string{k.name}, k.aliases...) {
			if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
				best, distance = candidate, d
			}
		}
	}
	return fmt.Sprintf("parameter %s (value %q) is not known; the nearest that is allowed: %s", name, value, best)
}

// editDistance is the number of insertions, deletions and replacements from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Known says whether Parse knows a parameter. The attributes of a PersistentVolume hold others besides.
func Known(name string) bool {
	_, ok := lookup(name)
	return ok
}
