package provisioner_test

import (
	"reflect"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestChangeMakesTheDifferencesAndNothingElse(t *testing.T) {
	t.Parallel()
	three, four := int64(3000), int64(4000)
	type settings = provisioner.DiskSettings
	for name, test := range map[string]struct{ from, to, is, want settings }{
		"nothing":     {},
		"a new value": {settings{Tier: "P10"}, settings{Tier: "P20"}, settings{Tier: "P10"}, settings{Tier: "P20"}},
		"a number": {settings{DiskIOPSReadWrite: &three}, settings{DiskIOPSReadWrite: &four}, settings{},
			settings{DiskIOPSReadWrite: &four}},
		"what others changed remains": {settings{Tier: "P10"}, settings{Tier: "P10"}, settings{Tier: "P30"},
			settings{Tier: "P30"}},
		"what is not named any more remains": {settings{Tier: "P10", DiskIOPSReadWrite: &three}, settings{},
			settings{Tier: "P10"}, settings{Tier: "P10"}},
		"only the case differs": {settings{}, settings{DiskAccessID: "/A"},
			settings{DiskAccessID: "/a"}, settings{DiskAccessID: "/a"}},
		"bursting is turned off":     {settings{BurstingEnabled: true}, settings{}, settings{BurstingEnabled: true}, settings{}},
		"the disk access is removed": {settings{DiskAccessID: "/a"}, settings{}, settings{DiskAccessID: "/A"}, settings{}},
		"tags are set, removed and left alone": {settings{Tags: tags("old", "both")}, settings{Tags: tags("both", "new")},
			settings{Tags: tags("old", "both", "foreign")}, settings{Tags: tags("both", "new", "foreign")}},
		"tags of a disk without any": {
			settings{}, settings{Tags: tags("new")}, settings{}, settings{Tags: tags("new")}},
		"a tag that others removed stays removed": {settings{Tags: tags("a")}, settings{Tags: tags("a")}, settings{}, settings{}},
		"a tag of others is removed, in whatever case": {settings{}, settings{RemovedTags: []string{"Foreign", "never"}},
			settings{Tags: tags("foreign", "kept")}, settings{Tags: tags("kept")}},
		"a tag that was removed before and is there again": {settings{RemovedTags: []string{"a"}},
			settings{RemovedTags: []string{"a", "b"}}, settings{Tags: tags("a", "b")}, settings{Tags: tags("a")}},
		"a tag of others in another case is the same": {settings{}, settings{Tags: tags("Owner")},
			settings{Tags: map[string]string{"owner": "b"}}, settings{Tags: map[string]string{"owner": "v"}}},
		"a tag is removed, in whatever case": {settings{Tags: tags("Owner", "kept")}, settings{Tags: tags("kept")},
			settings{Tags: tags("owner", "kept")}, settings{Tags: tags("kept")}},
		"there is nothing to remove": {settings{}, settings{RemovedTags: []string{"a"}}, settings{}, settings{}},
	} {
		change := provisioner.DiskChange{From: test.from, To: test.to}
		got := change.Apply(test.is)
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
		if again := change.Apply(got); !reflect.DeepEqual(again, got) {
			t.Errorf("%s: a repetition makes %+v of %+v", name, again, got)
		}
	}
}

func TestNamedSettings(t *testing.T) {
	t.Parallel()
	one, two := int64(1), int64(2)
	has := provisioner.DiskSettings{
		SKUName:           "Premium_LRS",
		Tier:              "P30",
		DiskIOPSReadWrite: &two,
		BurstingEnabled:   true,
		Tags:              tags("a", "b"),
	}
	got := has.Named(provisioner.DiskSettings{
		SKUName:           "StandardSSD_LRS",
		DiskIOPSReadWrite: &one,
		Tags:              tags("a", "c"),
	})
	want := provisioner.DiskSettings{
		SKUName:           "Premium_LRS",
		DiskIOPSReadWrite: &two,
		BurstingEnabled:   true,
		Tags:              tags("a"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := has.Named(provisioner.DiskSettings{RemovedTags: []string{"A",
		"gone"}}).RemovedTags, []string{"gone"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got removed tags %v, want %v", got, want)
	}
	if got, want := has.Named(provisioner.DiskSettings{Tags: tags("A")}).Tags, tags("A"); !reflect.DeepEqual(got, want) {
		t.Errorf("tags in another case: got %v, want %v", got, want)
	}
	if len(has.Tags) != 2 {
		t.Error("the tags of the disk were changed")
	}
}

func tags(names ...string) map[string]string {
	tags := map[string]string{}
	for _, name := range names {
		tags[name] = "v"
	}
	return tags
}
