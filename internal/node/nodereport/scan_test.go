package nodereport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	bootID    = "boot-2"
	oldBootID = "boot-1"
	volumeID  = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/PVC-1"
)

func TestTheKubeletsDirectoryIsNoLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kubelet, link := filepath.Join(dir, "kubelet"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(kubelet, 0o700), os.Symlink(kubelet, link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		kubelet:                     "",
		kubelet + "/":               "",
		link:                        fmt.Sprintf("the --root-dir of the kubelet to %q", kubelet),
		filepath.Join(dir, "later"): "",
	} {
		if err := CheckKubeletDir(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckKubeletDir(%q): %v, want an error with %q", path, err, want)
		}
	}
}

func TestCompare(t *testing.T) {
	fs := &provisioner.Filesystem{Type: "ext4", UUID: "u"}
	staged := apiv1.StagedVolume{
		VolumeName:  "v",
		Epoch:       3,
		Phase:       apiv1.PhaseStaged,
		Device:      "/dev/sdc",
		StagingPath: "/staging",
	}
	staging := apiv1.StagedVolume{VolumeName: "v", Epoch: 3, Phase: apiv1.PhaseStaging, StagingPath: "/staging"}
	mount := provisioner.MountPoint{Source: "/dev/sdc", Target: "/staging", FSType: "ext4"}
	record := func(edit func(*Record)) map[string]Record {
		r := Record{VolumeName: "v", Epoch: 3, BootID: bootID, StagingPath: "/staging", Device: "/dev/sdc"}
		edit(&r)
		return map[string]Record{"v": r}
	}
	plain := record(func(*Record) {})
	tests := map[string]struct {
		report   []apiv1.StagedVolume
		records  map[string]Record
		mounted  bool
		held     bool
		want     []apiv1.StagedVolume
		obsolete []string
	}{
		"nothing anywhere": {},
		"a mount that is reported stays as it is": {report: []apiv1.StagedVolume{staged}, records: plain, mounted: true,
			want: []apiv1.StagedVolume{staged}},
		"a mount that is not reported is added": {records: plain, mounted: true, want: []apiv1.StagedVolume{staged}},
		"a mount without a record is added with no epoch": {mounted: true,
			want: []apiv1.StagedVolume{{VolumeName: "v", Phase: apiv1.PhaseStaged, Device: "/dev/sdc", StagingPath: "/staging"}}},
		"an entry of an older epoch than the record is replaced": {
			report: []apiv1.StagedVolume{{VolumeName: "v", Epoch: 2, Phase: apiv1.PhaseUnstaging}}, records: plain, mounted: true,
			want: []apiv1.StagedVolume{staged}},
		"an announcement of a later epoch than the record stays": {
			report: []apiv1.StagedVolume{{VolumeName: "v", Epoch: 4, Phase: apiv1.PhaseStaging}}, records: plain, mounted: true,
			want: []apiv1.StagedVolume{{VolumeName: "v", Epoch: 4, Phase: apiv1.PhaseStaging}}},
		"an entry whose mount is gone is removed": {report: []apiv1.StagedVolume{staged}, records: plain,
			obsolete: []string{"v"}},
		"an announcement that was never followed by anything goes": {report: []apiv1.StagedVolume{staging}},
		"a device that something still holds keeps its entry": {report: []apiv1.StagedVolume{staging}, records: plain, held: true,
			want: []apiv1.StagedVolume{staging}},
		"a raw block device of this boot stays": {report: []apiv1.StagedVolume{staged},
			records: record(func(r *Record) { r.Block = true }), want: []apiv1.StagedVolume{staged}},
		"a raw block device of this boot is added": {records: record(func(r *Record) { r.Block = true }),
			want: []apiv1.StagedVolume{staged}},
		"a raw block device of before the reboot goes": {report: []apiv1.StagedVolume{staged},
			records: record(func(r *Record) { r.Block, r.BootID = true, oldBootID }), obsolete: []string{"v"}},
		"a format that was cut short stays, also over a reboot": {report: []apiv1.StagedVolume{staging},
			records: record(func(r *Record) { r.Formatting, r.BootID = fs, oldBootID }), want: []apiv1.StagedVolume{staging}},
		"a format that was cut short is added": {records: record(func(r *Record) { r.Formatting = fs }),
			want: []apiv1.StagedVolume{{VolumeName: "v", Epoch: 3, Phase: apiv1.PhaseStaging, Device: "/dev/sdc",
				StagingPath: "/staging"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found := findings{
				bootID:  bootID,
				records: test.records,
				mounted: map[string]provisioner.MountPoint{},
				held:    map[string]bool{"v": test.held},
			}
			if test.mounted {
				found.mounted["v"] = mount
			}
			entries, obsolete := compare(test.report, found)
			if diff := cmp.Diff(test.want, entries); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.obsolete, obsolete); diff != "" {
				t.Errorf("obsolete records (-want +got):\n%s", diff)
			}
		})
	}
}

// mountList is a node's mounts, and the devices that something holds.
type mountList struct {
	provisioner.Mounts
	provisioner.Devices
	points []provisioner.MountPoint
	held   map[string]bool
	// protected are the devices that were write-protected, and protectFails what that fails with.
	protected    []string
	protectFails error
}

func (m *mountList) List(context.Context) ([]provisioner.MountPoint, error) { return m.points, nil }

func (m *mountList) Flush(_ context.Context, device string) error {
	if m.held[device] {
		return provisioner.Conflict
	}
	return nil
}

func (m *mountList) SetReadOnly(_ context.Context, device provisioner.Device, readOnly bool) error {
	if m.protectFails == nil && readOnly {
		m.protected = append(m.protected, device.Path)
	}
	return m.protectFails
}

func newScanner(t *testing.T, mounts *mountList) Scanner {
	t.Helper()
	return Scanner{
		KubeletDir: t.TempDir(),
		DriverName: "disk.csi.azure.com",
		BootID:     bootID,
		Records:    Records{Dir: filepath.Join(t.TempDir(), "staged")},
		Mounts:     mounts,
		Devices:    mounts,
	}
}

func stagingPath(s Scanner) string {
	return filepath.Join(s.KubeletDir, "plugins/kubernetes.io/csi", s.DriverName, "abc123", "globalmount")
}

func TestScanNamesStagingMountsByTheKubeletsFile(t *testing.T) {
	mounts := &mountList{}
	scanner := newScanner(t, mounts)
	mounts.points = []provisioner.MountPoint{
		{Source: "proc", Target: "/proc"},
		{Source: "/dev/sdz", Target: filepath.Join(scanner.KubeletDir, "plugins/kubernetes.io/csi/other.driver/abc/globalmount")},
		{Source: "/dev/sdc", Target: stagingPath(scanner)},
	}
	if _, err := scanner.scan(t.Context()); err == nil {
		t.Error("scan with a staging mount that cannot be identified: got nil, want an error")
	}
	data, err := json.Marshal(map[string]string{"volumeHandle": volumeID, "driverName": scanner.DriverName})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(stagingPath(scanner), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(stagingPath(scanner)), "vol_data.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := scanner.scan(t.Context())
	if err != nil || len(found.mounted) != 1 || found.mounted[volumeNameOf(t, volumeID)].Source != "/dev/sdc" {
		t.Errorf("mounted = %v, %v; want /dev/sdc for %s alone", found.mounted, err, volumeID)
	}
}

func volumeNameOf(t *testing.T, id string) string {
	t.Helper()
	disk, err := volumehandle.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	return disk.VolumeName()
}

// Without the resource group in the name of the volume, the entry of one would stand for both, and
// go with the first that is unstaged.
func TestTwoDisksOfOneNameThatTheV1DriverStagedHaveTwoEntries(t *testing.T) {
	mounts := &mountList{}
	scanner := newScanner(t, mounts)
	ids := map[string]string{
		"/dev/sdc": volumeID,
		"/dev/sdd": strings.Replace(volumeID, "/resourceGroups/", "/resourceGroups/another-", 1),
	}
	for device, id := range ids {
		target := filepath.Join(scanner.KubeletDir, "plugins/kubernetes.io/csi", scanner.DriverName, filepath.Base(device),
			"globalmount")
		if err := os.MkdirAll(target, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(target), "vol_data.json"), fmt.Appendf(nil, `{"volumeHandle":%q}`, id),
			0o600); err != nil {
			t.Fatal(err)
		}
		mounts.points = append(mounts.points, provisioner.MountPoint{Source: device, Target: target})
	}
	found, err := scanner.scan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := compare(nil, found)
	got := map[string]string{}
	for _, entry := range entries {
		got[entry.Device] = entry.VolumeName
	}
	if len(got) != 2 || got["/dev/sdc"] != volumeNameOf(t, ids["/dev/sdc"]) ||
		got["/dev/sdd"] != volumeNameOf(t, ids["/dev/sdd"]) {
		t.Errorf("volumes by device: %v, want one entry for each of %v", got, ids)
	}
}

// Of a raw block volume only the device is mounted, once for each pod. The V1 driver keeps no
// record of it.
func TestScanFindsRawBlockVolumesOfV1(t *testing.T) {
	mounts := &mountList{}
	scanner := newScanner(t, mounts)
	blocks := filepath.Join(scanner.KubeletDir, "plugins/kubernetes.io/csi/volumeDevices")
	write := func(pv, handle, driver string) {
		t.Helper()
		data, err := json.Marshal(map[string]string{"volumeHandle": handle, "driverName": driver})
		if err == nil {
			err = os.MkdirAll(filepath.Join(blocks, pv, "data"), 0o750)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(blocks, pv, "data", "vol_data.json"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("pv-1", volumeID, scanner.DriverName)
	write("pv-2", "a volume of another driver", "other.driver")
	for pv, device := range map[string]string{"pv-1": "/dev/sdc", "pv-2": "/dev/sdd", "without-a-file": "/dev/sde"} {
		for _, pod := range []string{"uid-1", "uid-2"} {
			mounts.points = append(mounts.points, provisioner.MountPoint{
				Source: device,
				Target: filepath.Join(blocks, "publish", pv, pod),
			})
		}
	}
	api := newAPI(t)
	r, _ := newReporter(t, api, scanner)
	if _, err := r.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	staging := filepath.Join(blocks, "staging", "pv-1")
	name := volumeNameOf(t, volumeID)
	want := []apiv1.StagedVolume{{
		VolumeName: name, Phase: apiv1.PhaseStaged, Device: "/dev/sdc", StagingPath: staging, Published: true,
	}}
	if diff := cmp.Diff(want, get(t, api).Status.StagedVolumes); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	records, err := scanner.Records.List()
	wantRecords := map[string]Record{
		name: {VolumeName: name, VolumeID: volumeID, BootID: bootID, StagingPath: staging, Device: "/dev/sdc", Block: true},
	}
	if diff := cmp.Diff(wantRecords, records); diff != "" || err != nil {
		t.Errorf("records: %v (-want +got):\n%s", err, diff)
	}
}

// Two PersistentVolumes of one disk, whose handles differ in case, have been staged by the V1
// driver.
func TestScanFindsAllStagingPathsOfAVolume(t *testing.T) {
	mounts := &mountList{}
	scanner := newScanner(t, mounts)
	var paths []string
	for dir, handle := range map[string]string{"one": volumeID, "two": strings.ToUpper(volumeID)} {
		path := filepath.Join(scanner.KubeletDir, "plugins/kubernetes.io/csi", scanner.DriverName, dir, "globalmount")
		if err := os.MkdirAll(path, 0o750); err != nil {
			t.Fatal(err)
		}
		data := fmt.Sprintf(`{"volumeHandle":%q,"driverName":%q}`, handle, scanner.DriverName)
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "vol_data.json"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		mounts.points = append(mounts.points, provisioner.MountPoint{Source: "/dev/sdc", Target: path})
		paths = append(paths, path)
	}
	r, _ := newReporter(t, newAPI(t), scanner)
	if _, err := r.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	record, _, err := scanner.Records.Get(volumeNameOf(t, volumeID))
	if got := record.Paths(); err != nil || len(got) != 2 || !record.StagedAt(paths[0]) || !record.StagedAt(paths[1]) {
		t.Errorf("the record has the staging paths %q, %v, want %q", got, err, paths)
	}
}

func TestScanNamesStagingMountsByTheRecord(t *testing.T) {
	mounts := &mountList{}
	scanner := newScanner(t, mounts)
	mounts.points = []provisioner.MountPoint{{Source: "/dev/sdc", Target: "/anywhere/else"}}
	if err := scanner.Records.Put(Record{VolumeName: "v", StagingPath: "/anywhere/else"}); err != nil {
		t.Fatal(err)
	}
	found, err := scanner.scan(t.Context())
	if err != nil || found.mounted["v"].Target != "/anywhere/else" {
		t.Errorf("mounted = %v, %v", found.mounted, err)
	}
}

func TestScanAsksForTheDeviceOfARecordWithoutAMount(t *testing.T) {
	tests := map[string]struct {
		record Record
		points []provisioner.MountPoint
		want   bool
	}{
		"something holds it":     {record: Record{BootID: bootID, Device: "/dev/sdc"}, want: true},
		"it was of another boot": {record: Record{BootID: oldBootID, Device: "/dev/sdc"}},
		"the path means another volume's disk by now": {record: Record{BootID: bootID, Device: "/dev/sdc"},
			points: []provisioner.MountPoint{{Source: "/dev/sdc", Target: "/other"}}},
		"nothing holds it": {record: Record{BootID: bootID, Device: "/dev/sdd"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scanner := newScanner(t, &mountList{points: test.points, held: map[string]bool{"/dev/sdc": true}})
			test.record.VolumeName, test.record.StagingPath = "v", "/staging"
			for _, record := range []Record{test.record, {
				VolumeName:  "w",
				StagingPath: "/other",
				Device:      "/dev/sdc",
				BootID:      bootID,
			}} {
				if err := scanner.Records.Put(record); err != nil {
					t.Fatal(err)
				}
			}
			found, err := scanner.scan(t.Context())
			if err != nil || found.held["v"] != test.want {
				t.Errorf("held = %v, %v, want %v", found.held, err, test.want)
			}
		})
	}
}

func TestRecordsLastAndGo(t *testing.T) {
	records := Records{Dir: filepath.Join(t.TempDir(), "a", "b")}
	want := Record{
		VolumeName: "v",
		VolumeID:   volumeID,
		Epoch:      7,
		Block:      true,
		Formatting: &provisioner.Filesystem{Type: "xfs", UUID: "u"},
	}
	if _, found, err := records.Get("v"); found || err != nil {
		t.Errorf("before: found = %v, %v", found, err)
	}
	for range 2 {
		if err := records.Put(want); err != nil {
			t.Fatal(err)
		}
	}
	// What a process leaves behind that is killed while it writes.
	if err := os.WriteFile(filepath.Join(records.Dir, "v.json.new"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := records.List()
	if diff := cmp.Diff(map[string]Record{"v": want}, got); diff != "" || err != nil {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
	for range 2 {
		if err := records.Delete("v"); err != nil {
			t.Fatal(err)
		}
	}
	if _, found, err := records.Get("v"); found || err != nil {
		t.Errorf("after Delete: found = %v, %v", found, err)
	}
}

// A report without a volume proves that this node does not write to it (law 3), also if a process
// was killed between the unmount and the end of the record.
func TestScanProtectsADeviceThatIsNotInUse(t *testing.T) {
	for name, test := range map[string]struct {
		fails error
		inUse bool
	}{
		"it can be protected":    {},
		"the device is gone":     {fails: provisioner.NotFound},
		"it cannot be protected": {fails: provisioner.Unavailable, inUse: true},
	} {
		t.Run(name, func(t *testing.T) {
			mounts := &mountList{protectFails: test.fails}
			scanner := newScanner(t, mounts)
			record := Record{VolumeName: "v", VolumeID: volumeID, Epoch: 3, BootID: bootID, Device: "/dev/sdc"}
			if err := scanner.Records.Put(record); err != nil {
				t.Fatal(err)
			}
			found, err := scanner.scan(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := found.held["v"]; got != test.inUse {
				t.Errorf("the device counts as in use: %t, want %t", got, test.inUse)
			}
			if want := test.fails == nil; slices.Contains(mounts.protected, "/dev/sdc") != want {
				t.Errorf("protected are %q, want /dev/sdc: %t", mounts.protected, want)
			}
		})
	}
}
