package usage_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/csi/usage"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	diskID = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/vol"

	writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	shared = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

func block(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func mount(mode csi.VolumeCapability_AccessMode_Mode, fsType string, flags ...string) *csi.VolumeCapability {
	c := block(mode)
	c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}}
	return c
}

func TestARequestThatIsRefused(t *testing.T) {
	t.Parallel()
	untyped := block(writer)
	untyped.AccessType = nil
	for name, test := range map[string]struct {
		id         string
		capability *csi.VolumeCapability
		context    map[string]string
		want       error
		says       string
	}{
		"no capability": {
			diskID, nil, nil, provisioner.InvalidArgument, "the volume capability is missing"},
		"no access type": {
			diskID, untyped, nil, provisioner.InvalidArgument, "neither mount nor block"},
		"no access mode": {
			diskID, block(0), nil, provisioner.InvalidArgument, "access mode UNKNOWN"},
		"a mount option that is none": {
			diskID, mount(writer, "", "bind"), nil, provisioner.InvalidArgument, "bind"},
		"an unknown filesystem": {
			diskID, mount(writer, "ntfs"), nil, provisioner.InvalidArgument, `"ntfs" is not supported`},
		"an unknown filesystem's key": {
			diskID, mount(writer, "xfs"), map[string]string{"FSTYPE": "Ntfs"}, provisioner.InvalidArgument, `"ntfs"`},
		"a filesystem on several nodes": {
			diskID, mount(shared, ""), nil, provisioner.InvalidArgument, "must be a raw block volume"},
		"a partition that is none": {
			diskID, block(writer), map[string]string{"Partition": "first"}, provisioner.InvalidArgument, "first"},
		"a volume ID that is none": {"nonsense", block(writer), nil, provisioner.NotFound, "nonsense"},
		"a volume ID and a mode of no use": {
			"nonsense", block(0), nil, provisioner.InvalidArgument, "access mode"},
	} {
		u, err := usage.Read(test.id, test.capability, test.context)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, test.want, test.says)
		}
		if test.id == diskID && u.Disk.DiskName != "vol" {
			t.Errorf("%s: got disk %s, want it beside the error", name, u.Disk)
		}
	}
}

func TestHowAVolumeIsUsed(t *testing.T) {
	t.Parallel()
	v := &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{Filesystem: &apiv1.Filesystem{Type: "ext3"}}}
	for name, test := range map[string]struct {
		capability          *csi.VolumeCapability
		context             map[string]string
		fsType              string
		readOnly, oneTarget bool
		block               bool
		partition           int
	}{
		"a filesystem":                      {capability: mount(writer, "XFS"), fsType: "xfs"},
		"a filesystem of the volume's type": {capability: mount(writer, ""), fsType: "ext3"},
		"a type in the volume context": {
			capability: mount(writer, "xfs"), context: map[string]string{"fsType": "EXT4"}, fsType: "ext4"},
		"no type in the volume context": {
			capability: mount(writer, "xfs"), context: map[string]string{"fsType": ""}, fsType: "xfs"},
		"another key in the volume context": {
			capability: mount(writer, "xfs"), context: map[string]string{"other": "ext4"}, fsType: "xfs"},
		"raw block of any type": {
			capability: block(writer), context: map[string]string{"fstype": "ntfs"}, fsType: "ntfs", block: true},
		"raw block on several nodes": {capability: block(shared), fsType: "ext3", block: true},
		"raw block, read by several nodes": {
			capability: block(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY),
			fsType:     "ext3", block: true, readOnly: true},
		"one reader": {
			capability: mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, ""), fsType: "ext3", readOnly: true},
		"one pod": {
			capability: mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, ""), fsType: "ext3", oneTarget: true},
		"a partition": {
			capability: block(writer), context: map[string]string{"PARTITION": "2"}, fsType: "ext3", block: true, partition: 2},
	} {
		u, err := usage.Read(diskID, test.capability, test.context)
		if err != nil || u.Wanted(v) != test.fsType || u.ReadOnly != test.readOnly || u.OneTarget != test.oneTarget ||
			u.Block != test.block || u.Partition != test.partition {
			t.Errorf("%s: got %+v of type %s, %v", name, u, u.Wanted(v), err)
		}
	}
}

func TestTheOptionsOfAMount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sealed   bool
		fsType   string
		flags    []string
		want     []string
		readOnly bool
	}{
		"the caller's":               {false, "ext4", []string{"noatime"}, []string{"noatime"}, false},
		"of a sealed volume":         {true, "ext4", []string{"noatime"}, []string{"noatime", "ro"}, true},
		"of a volume that is read":   {false, "ext4", []string{"ro"}, []string{"ro"}, true},
		"of xfs, whose UUIDs repeat": {false, "xfs", nil, []string{"nouuid"}, false},
	} {
		u, err := usage.Read(diskID, mount(writer, test.fsType, test.flags...), nil)
		u.Sealed = test.sealed
		got := slices.Sorted(slices.Values(u.MountOptions(test.fsType)))
		if err != nil || !slices.Equal(got, test.want) || u.MountsReadOnly() != test.readOnly {
			t.Errorf("%s: got %q, read-only %t, %v; want %q, %t", name, got, u.MountsReadOnly(), err, test.want, test.readOnly)
		}
	}
}

// Mounts are found by comparing paths.
func TestAPathIsAbsoluteAndClean(t *testing.T) {
	t.Parallel()
	for path, says := range map[string]string{
		"/var/lib": "", "": "staging path is missing", "var/lib": "absolute", "/var//lib": "absolute", "/var/../lib": "absolute",
	} {
		err := usage.CheckPath("staging path", path)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got error %v, want %q", path, err, says)
		}
	}
}

func TestAStagingPathIsBelowTheKubeletsDirectory(t *testing.T) {
	for path, accepted := range map[string]bool{
		"/data/kubelet/plugins/globalmount": true, "/data/kubelet": false, "/data/kubelet2/globalmount": false,
		"/var/lib/kubelet/globalmount": false, "globalmount": false,
	} {
		for _, dir := range []string{"/data/kubelet", "/data/kubelet/"} {
			err := usage.CheckStagingPath(path, dir)
			if (err == nil) != accepted || err != nil && !errors.Is(err, provisioner.InvalidArgument) {
				t.Errorf("%q below %q: %v, want accepted %t", path, dir, err, accepted)
			}
		}
	}
}
