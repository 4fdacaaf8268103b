package filesystem

import (
	"errors"
	"strings"
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestLaw4NeverFormatTwice(t *testing.T) {
	ext4 := provisioner.Filesystem{Type: "ext4", UUID: "u-1"}
	record := &apiv1.FilesystemRecord{Type: "ext4", UUID: "u-1"}
	source := &apiv1.VolumeSource{SnapshotID: "snapshot"}
	ownUUID := provisioner.Filesystem{Type: "ext4", UUID: copyUUID(&apiv1.AzVolume{})}
	tests := map[string]struct {
		in     formatInput
		record *apiv1.FilesystemRecord
		source *apiv1.VolumeSource
		want   formatAction
		names  []string // in the refusal
	}{
		"blank, nothing recorded, no source": {in: formatInput{blank: true, wanted: "ext4"}, want: makeNew},
		"blank, and a filesystem is recorded": {in: formatInput{blank: true}, record: record,
			names: []string{"blank", "ext4", "u-1"}},
		"blank, and there is a source":    {in: formatInput{blank: true}, source: source, names: []string{"snapshot", "raw block"}},
		"the filesystem that is recorded": {in: formatInput{found: ext4, wanted: "ext4"}, record: record, want: keepContent},
		"another UUID than recorded": {in: formatInput{found: provisioner.Filesystem{Type: "ext4", UUID: "u-2"}}, record: record,
			names: []string{"u-1", "u-2"}},
		"another type than recorded": {in: formatInput{found: provisioner.Filesystem{Type: "xfs", UUID: "u-1"}}, record: record,
			names: []string{"xfs", "ext4"}},
		"no filesystem where one is recorded": {in: formatInput{}, record: record,
			names: []string{"ext4", "u-1", "no filesystem"}},
		"a filesystem, nothing recorded":                 {in: formatInput{found: ext4, wanted: "ext4"}, want: keepContent},
		"a filesystem, nothing recorded, nothing wanted": {in: formatInput{found: ext4}, want: keepContent},
		"a filesystem of another type than asked for": {in: formatInput{found: ext4, wanted: "xfs"},
			names: []string{"ext4", "xfs"}},
		"a filesystem from a source": {in: formatInput{found: ext4, wanted: "ext4"}, source: source, want: renew},
		"the same with the copy's own UUID already": {in: formatInput{found: ownUUID, wanted: "ext4"}, source: source,
			want: keepContent},
		"the same, recorded with the source's UUID": {in: formatInput{found: ext4, wanted: "ext4"}, source: source,
			record: record, want: keepContent},
		"the same, mounted already": {in: formatInput{found: ext4, wanted: "ext4", mounted: true}, source: source,
			want: keepContent},
		"a filesystem of another type from a source": {in: formatInput{found: ext4, wanted: "xfs"}, source: source,
			names: []string{"ext4", "xfs"}},
		"neither blank nor a filesystem": {in: formatInput{wanted: "ext4"}, names: []string{"not blank"}},
		"something that cannot be mounted": {in: formatInput{found: provisioner.Filesystem{Type: "LVM2_member", UUID: "x"}},
			names: []string{"LVM2_member"}},
		"what this node left when it was cut short": {in: formatInput{interrupted: &ext4, wanted: "ext4"}, want: makeAgain},
		"the same with a superblock already":        {in: formatInput{interrupted: &ext4, found: ext4, wanted: "ext4"}, want: makeAgain},
		"cut short before anything was written": {in: formatInput{interrupted: &ext4, blank: true, wanted: "ext4"},
			want: makeNew},
		"cut short once, and recorded since": {in: formatInput{interrupted: &ext4, found: ext4, wanted: "ext4"}, record: record,
			want: keepContent},
		"cut short once, and recorded as something else": {in: formatInput{interrupted: &ext4},
			record: &apiv1.FilesystemRecord{Type: "xfs", UUID: "u-9"}, names: []string{"xfs", "u-9"}},
		"a volume with a source is never taken for our own": {in: formatInput{interrupted: &ext4}, source: source,
			names: []string{"not blank"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.in.volume = &apiv1.AzVolume{}
			test.in.volume.Status.Filesystem, test.in.volume.Spec.Source = test.record, test.source
			got, err := planFormat(test.in)
			if got != test.want || (err == nil) != (test.want != "") {
				t.Fatalf("planFormat = %q, %v, want %q", got, err, test.want)
			}
			if err != nil && !errors.Is(err, provisioner.FailedPrecondition) {
				t.Errorf("error = %v, want FailedPrecondition", err)
			}
			for _, name := range test.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("the refusal does not name %q: %v", name, err)
				}
			}
		})
	}
}
