package provisioner

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// DiskSettings are the parameters of a disk that can be changed while it exists. A zero value is
// the platform's default. The custom resources have a type with the same fields, and Go converts
// the one into the other; the compiler refuses a field that only one of them has.
type DiskSettings struct {
	// SKUName as in "Premium_LRS".
	SKUName           string
	DiskIOPSReadWrite *int64
	DiskMBpsReadWrite *int64
	// DiskIOPSReadOnly and DiskMBpsReadOnly are the limits of all VMs together that share a disk
	// read-only.
	DiskIOPSReadOnly *int64
	DiskMBpsReadOnly *int64
	// Tier is the performance tier, as in "P30"; "" for the tier of the size.
	Tier                string
	BurstingEnabled     bool
	NetworkAccessPolicy string
	PublicNetworkAccess string
	DiskAccessID        string
	Tags                map[string]string
	// RemovedTags are names of tags that the disk shall not have, without regard to case. A disk
	// that was read has none.
	RemovedTags []string
}

// ImmutableDiskSettings are the parameters that a disk has for life. A zero value is the platform's
// default. The custom resources have a type with the same fields.
type ImmutableDiskSettings struct {
	LogicalSectorSizeBytes     *int32
	DiskEncryptionSetID        string
	DiskEncryptionType         string
	PerformancePlusEnabled     bool
	OptimizedForFrequentAttach bool
	// ActionOnDiskDelay is what the platform does when the disk stops answering: "None" or
	// "AutomaticReattach".
	ActionOnDiskDelay string
}

// DiskChange is what Disks.Update changes: the differences between From and To, and nothing else.
type DiskChange struct {
	// SizeBytes is the size to grow to; 0 leaves the size alone.
	SizeBytes int64
	From, To  DiskSettings
}

// Apply returns the settings that a disk is to have after the change. Settings that To does not
// name stay, because a platform cannot unset them. Bursting, the disk access and tags are the
// exception: it removes what only From has. Texts that differ only in case are the same to a
// platform.
func (c DiskChange) Apply(is DiskSettings) DiskSettings {
	from, to, has := reflect.ValueOf(c.From), reflect.ValueOf(c.To), reflect.ValueOf(&is).Elem()
	for i := range has.NumField() {
		wanted := to.Field(i)
		switch {
		case wanted.Kind() == reflect.Map, wanted.Kind() == reflect.Slice,
			reflect.DeepEqual(wanted.Interface(), from.Field(i).Interface()):
		case wanted.Kind() == reflect.String && strings.EqualFold(wanted.String(), has.Field(i).String()):
		case wanted.Kind() == reflect.Bool, !wanted.IsZero():
			has.Field(i).Set(wanted)
		}
	}
	if c.To.DiskAccessID == "" && c.From.DiskAccessID != "" {
		is.DiskAccessID = ""
	}
	is.Tags = maps.Clone(is.Tags)
	if !maps.Equal(c.From.Tags, c.To.Tags) {
		if is.Tags == nil {
			is.Tags = map[string]string{}
		}
		maps.DeleteFunc(is.Tags, func(name, _ string) bool {
			return HasTag(slices.Collect(maps.Keys(c.From.Tags)), name)
		})
		for name, value := range c.To.Tags {
			SetTag(is.Tags, name, value)
		}
	}
	maps.DeleteFunc(is.Tags, func(name, _ string) bool {
		return HasTag(c.To.RemovedTags, name) && !HasTag(c.From.RemovedTags, name)
	})
	return is
}

// HasTag reports whether names have the name of a tag. A platform compares them without regard to
// case.
func HasTag(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// SetTag sets a tag. If there is one whose name differs in case only, which is the same tag to a
// platform, it gets the value and keeps the spelling of its name.
func SetTag(tags map[string]string, name, value string) {
	if _, exact := tags[name]; !exact {
		for is := range tags {
			if strings.EqualFold(is, name) {
				name = is
				break
			}
		}
	}
	tags[name] = value
}

// Named returns the disk's values of the settings that others name, with the tags in the spelling
// of others. A switch always counts as named.
func (s DiskSettings) Named(others DiskSettings) DiskSettings {
	tags, named, has := s.Tags, reflect.ValueOf(others), reflect.ValueOf(&s).Elem()
	for i := range has.NumField() {
		if named.Field(i).IsZero() && has.Field(i).Kind() != reflect.Bool {
			has.Field(i).SetZero()
		}
	}
	s.RemovedTags = slices.DeleteFunc(slices.Clone(others.RemovedTags), func(name string) bool {
		return HasTag(slices.Collect(maps.Keys(tags)), name)
	})
	if tags != nil {
		s.Tags = map[string]string{}
	}
	for is, value := range tags {
		for name := range others.Tags {
			if strings.EqualFold(is, name) {
				s.Tags[name] = value
			}
		}
	}
	return s
}
