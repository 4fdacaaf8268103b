package mountoptions_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/mountoptions"
)

const selinux = `context="system_u:object_r:container_file_t:s0:c1,c2"`

func TestOptionsAreSplitAsMountSplitsThem(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ entries, want []string }{
		"none":                   {},
		"one option in an entry": {entries: []string{"ro", "noatime"}, want: []string{"ro", "noatime"}},
		"several options in an entry": {entries: []string{"ro,noatime", "nodiratime"},
			want: []string{"ro", "noatime", "nodiratime"}},
		"empty entries and options": {entries: []string{"", "ro,,noatime", ",nodiratime,"},
			want: []string{"ro", "noatime", "nodiratime"}},
		"a comma in a quoted label": {
			entries: []string{"noatime," + selinux + ",ro"}, want: []string{"noatime", selinux, "ro"}},
		"a comma after a backslash":            {entries: []string{`comment=a\,b,ro`}, want: []string{`comment=a\,b`, "ro"}},
		"white space in quotes":                {entries: []string{`comment="a b"`}, want: []string{`comment="a b"`}},
		"a repeated option":                    {entries: []string{"noatime", "ro,noatime"}, want: []string{"ro", "noatime"}},
		"the last of three decides":            {entries: []string{"noatime,atime,noatime"}, want: []string{"atime", "noatime"}},
		"ro after rw":                          {entries: []string{"rw", "ro"}, want: []string{"ro"}},
		"rw after ro":                          {entries: []string{"ro,noatime,rw"}, want: []string{"noatime", "rw"}},
		"one option with two values":           {entries: []string{"commit=5,commit=7"}, want: []string{"commit=5", "commit=7"}},
		"an option that has ro in its value":   {entries: []string{"errors=remount-ro"}, want: []string{"errors=remount-ro"}},
		"an option that begins as one refused": {entries: []string{"moves,loops"}, want: []string{"moves", "loops"}},
		"options for fstab": {
			entries: []string{"defaults,_netdev,x-a=b"}, want: []string{"defaults", "_netdev", "x-a=b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := mountoptions.Parse(test.entries); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("Parse(%q) = %q, %v, want %q", test.entries, got, err, test.want)
			}
		})
	}
}

func TestEntriesThatNoMountCanHave(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		" noatime":      "white space",
		"ro, noatime":   "white space",
		"ro noatime":    "white space",
		"ro\t":          "white space",
		"\"a\nb\"":      "control characters",
		`context="a,b`:  "not closed",
		"noatime,bind":  `option "bind"`,
		"rbind":         `option "rbind"`,
		"move":          `option "move"`,
		"remount,ro":    `option "remount"`,
		"loop":          `option "loop"`,
		"loop=/dev/sda": `option "loop=/dev/sda"`,
		"ro=fs":         `use "ro"`,
		"directmount=1": `use "directmount"`,
	} {
		_, err := mountoptions.Parse([]string{"noatime", entry})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mountOptions") {
			t.Errorf("Parse(%q) = %v, want an error about mountOptions with %q", entry, err, want)
		}
	}
}

func TestWhatOptionsSay(t *testing.T) {
	t.Parallel()
	parsed, err := mountoptions.Parse([]string{"noatime,rw," + selinux})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := mountoptions.Label(parsed), "system_u:object_r:container_file_t:s0:c1,c2"; got != want {
		t.Errorf("Label(%q) = %q, want %q", parsed, got, want)
	}
	if mountoptions.ReadOnly(parsed) {
		t.Errorf("ReadOnly(%q) = true, want false", parsed)
	}
	sealed := mountoptions.WithReadOnly(parsed)
	if !mountoptions.ReadOnly(sealed) || slices.Contains(sealed, "rw") {
		t.Errorf("WithReadOnly(%q) = %q, want ro without rw", parsed, sealed)
	}
	if got := mountoptions.Label([]string{"ro"}); got != "" {
		t.Errorf("Label(ro) = %q, want none", got)
	}
}

// The V1 driver takes the option away, too, before it mounts.
func TestTheOptionForNoCheckIsNotMounts(t *testing.T) {
	t.Parallel()
	options, err := mountoptions.Parse([]string{"noatime,directmount", "ro"})
	if err != nil || !mountoptions.Unchecked(options) {
		t.Errorf("got %q, %v, want an option for no check", options, err)
	}
	if got := mountoptions.ForMount(options); !slices.Equal(got, []string{"noatime", "ro"}) || mountoptions.Unchecked(got) {
		t.Errorf("got %q, want those of mount(8) only", got)
	}
}
