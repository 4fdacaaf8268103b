package csi_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// A volume is staged and published with the options that mount(8) sees, however the entries of
// mountOptions join them.
func TestJoinedMountOptions(t *testing.T) {
	t.Parallel()
	const label = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	tests := map[string]struct {
		flags []string
		// sealed is set if the volume was published to the node read-only.
		sealed bool
		want   string
	}{
		"two entries":                           {flags: []string{"ro", "noatime"}, want: "ro,noatime"},
		"read-only, joined":                     {flags: []string{"ro,noatime"}, want: "ro,noatime"},
		"writable after read-only":              {flags: []string{"ro,noatime,rw"}, want: "noatime,rw"},
		"writable, of a volume sealed":          {flags: []string{"rw,noatime"}, sealed: true, want: "noatime,ro"},
		"writable and read-only, sealed":        {flags: []string{"ro", "rw"}, sealed: true, want: "ro"},
		"read-only, joined with a label":        {flags: []string{"ro," + label}, want: "ro," + label},
		"empty entries beside one of the label": {flags: []string{"", label + ",", "noatime"}, want: label + ",noatime"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			host.Content.FS.Type, host.Content.FS.UUID = "ext4", "1"
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { a.Spec.ReadOnly = test.sealed })
			s := m.start()
			capability := mountCapability("ext4", test.flags...)
			for _, call := range []string{"first", "repeated"} {
				m.must(m.stage(s, capability))
				m.must(m.publishVolume(s, capability, false))
				if host.Options != test.want {
					t.Errorf("%s call: mounted with %q, want %q", call, host.Options, test.want)
				}
			}
			label := m.record().SELinuxLabel
			if want := strings.Contains(test.want, "context="); label == nil || (*label != "") != want {
				t.Errorf("the record has the label %v, want one: %t", label, want)
			}
			m.must(m.unpublishVolume(s))
			m.must(m.unstage(s))
			m.assertClean()
		})
	}
}

func TestMountOptionsThatNoMountCanHaveLeaveNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
	m.publish(nil)
	for _, entry := range []string{" noatime", "ro, noatime", "loop", `context="a,b`} {
		wantCode(t, m.stage(m.start(), mountCapability("ext4", entry)), codes.InvalidArgument, "mountOptions")
		m.assertClean()
	}
}

// The check of a large filesystem can take hours. A user of the V1 driver leaves it out by an
// option, which mount(8) does not know.
func TestAFilesystemIsMountedWithoutACheckOnRequest(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]struct {
		options string
		checks  int
	}{
		"noatime":             {"noatime", 1},
		"noatime,directmount": {"noatime", 0},
	} {
		t.Run(flags, func(t *testing.T) {
			host, checks := newMemoryHost(), 0
			host.Content.FS.Type, host.Content.FS.UUID = "ext4", "1"
			host.OnCheck = func(string) error { checks++; return nil }
			m := newMachine(t, host, t.TempDir(), quiet)
			m.publish(nil)
			m.must(m.stage(m.start(), mountCapability("ext4", flags)))
			if host.Options != want.options || checks != want.checks {
				t.Errorf("got options %q and %d checks, want %q and %d", host.Options, checks, want.options, want.checks)
			}
		})
	}
}
