//go:build vm

package nodeplugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/reservation"
	"github.com/azuredisk-csi/azuredisk/test/vm/kernel"
)

// program is put there by hack/vm-test.sh.
const program = "/share/azuredisk"

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// memoryLimit of a plug-in and of what it starts, in bytes. It is an eighth of the chart's.
const memoryLimit = 128 * hosttest.MiB

// confine starts the process in a cgroup of its own, with the memory limit, as the kubelet does
// with a container under cgroup v2. The test fails if the kernel kills something in it for lack of
// memory.
func confine(t *testing.T, process *exec.Cmd) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	kernel.Write(t, filepath.Join(root, "cgroup.subtree_control"), "+memory")
	group, err := os.MkdirTemp(root, "plugin-")
	expect.Must(t, err)
	kernel.Write(t, filepath.Join(group, "memory.max"), fmt.Sprint(memoryLimit))
	dir, err := os.Open(group)
	expect.Must(t, err)
	process.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	t.Cleanup(func() {
		expect.Must(t, dir.Close())
		events := kernel.Attribute(group, "memory.events")
		if !strings.Contains(events, "\noom_kill 0") {
			t.Errorf("the kernel says of the plug-in's memory: %s; want no kill", strings.ReplaceAll(events, "\n", ", "))
		}
		t.Logf("the plug-in and its commands took at most %s of %d bytes", kernel.Attribute(group, "memory.peak"), memoryLimit)
		// The group is busy until the last process in it was reaped.
		expect.Eventually(t, "the end of the cgroup", func() bool { return os.Remove(group) == nil })
	})
}

// failover is a volume with a replica on a shared SCSI disk, the plug-ins of its two nodes, and the
// test as the controller.
type failover struct {
	*testing.T
	disk       *kernel.SharedDisk
	devices    []string
	nodes      [2]*machine
	volume     *apiv1.AzVolume
	attachment [2]*apiv1.AzVolumeAttachment
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{T: t, disk: kernel.NewSharedDisk(t, kernel.Login(t, "failover", 2), 128*hosttest.MiB, int(lun))}
	t.Cleanup(func() { f.disk.Destroy(t) })
	f.devices = f.disk.Devices(t)
	namespace := apiserver.Namespace(t)
	for i, name := range []string{nodeName, "node-b"} {
		m := newMachineOf(t, name, namespace)
		(&hosttest.Disk{Device: f.devices[i]}).Link(t, m.links, lun)
		m.start()
		m.register("")
		f.nodes[i] = m
	}
	f.volume, f.attachment[0] = f.nodes[0].publish(1, 2)
	f.volume.Status.SizeBytes = 128 * hosttest.MiB
	expect.Must(t, f.nodes[0].api.Status().Update(t.Context(), f.volume))
	f.attachment[1] = &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, "node-b")},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: "node-b", Role: apiv1.RoleReplica},
	}
	expect.Must(t, f.nodes[1].api.Create(t.Context(), f.attachment[1]))
	for i, a := range f.attachment {
		a.Status.State, a.Status.LUN = apiv1.AttachmentAttached, ptr.To(lun)
		expect.Must(t, f.nodes[i].api.Status().Update(t.Context(), a))
	}
	return f
}

// setStatus writes what edit changes in the status of an object. The plug-ins write other fields at
// the same time.
func setStatus[T client.Object](f *failover, object T, edit func(T)) {
	f.Helper()
	api := f.nodes[0].api
	expect.Must(f.T, api.Get(f.Context(), client.ObjectKeyFromObject(object), object))
	before := object.DeepCopyObject().(client.Object)
	edit(object)
	expect.Must(f.T, api.Status().Patch(f.Context(), object, client.MergeFrom(before)))
}

// request makes the controller's requests to node-b.
func (f *failover) request(requests *apiv1.NodeRequests) {
	f.Helper()
	api, node := f.nodes[0].api, f.nodes[1].report()
	expect.Must(f.T, api.Get(f.Context(), client.ObjectKeyFromObject(node), node))
	before := node.DeepCopy()
	node.Spec.Requests = requests
	expect.Must(f.T, api.Patch(f.Context(), node, client.MergeFrom(before)))
}

// ask asks node-b to fence node-a.
func (f *failover) ask() apiv1.FenceResult {
	f.Helper()
	setStatus(f, f.volume, func(v *apiv1.AzVolume) {
		v.Status.Primary.State, v.Status.Primary.Cause = apiv1.OwnershipReleasing, apiv1.CauseNodeLost
	})
	f.request(&apiv1.NodeRequests{Fences: []apiv1.FenceRequest{{
		VolumeName:  volume,
		VolumeUID:   f.volume.UID,
		NodeName:    nodeName,
		Epoch:       1,
		RequestTime: metav1.NowMicro(),
	}}})
	var results []apiv1.FenceResult
	f.nodes[1].await("the result of the fence", func() bool {
		results = f.nodes[1].report().Status.FenceResults
		return len(results) > 0
	})
	return results[0]
}

// hand makes node-b the owner, and node-a proved to be fenced.
func (f *failover) hand(result apiv1.FenceResult) {
	f.Helper()
	now := metav1.Now()
	setStatus(f, f.attachment[0], func(a *apiv1.AzVolumeAttachment) {
		a.Status.State = apiv1.AttachmentDetaching
		a.Status.Proof = &apiv1.ReleaseProof{
			Type:       apiv1.ProofPreempted,
			Epoch:      1,
			ProvenTime: now,
			Preemption: &apiv1.Preemption{NodeName: "node-b", Key: result.Key, PRGeneration: result.PRGeneration},
		}
	})
	setStatus(f, f.volume, func(v *apiv1.AzVolume) {
		v.Status.Primary = &apiv1.Ownership{NodeName: nodeName, Epoch: 1, State: apiv1.OwnershipReleased}
	})
	b := f.attachment[1]
	b.Spec.Role, b.Spec.Epoch = apiv1.RolePrimary, 2
	expect.Must(f.T, f.nodes[1].api.Update(f.Context(), b))
	setStatus(f, f.volume, func(v *apiv1.AzVolume) {
		v.Status.Primary = &apiv1.Ownership{NodeName: "node-b", Epoch: 2, State: apiv1.OwnershipHeld}
	})
}

// detach is the end of the forced detach.
func (f *failover) detach() {
	f.Helper()
	f.disk.Detach(f.T, 0)
	expect.Must(f.T, f.nodes[0].api.Delete(f.Context(), f.attachment[0]))
	f.request(nil)
}

// expectHolder expects that the disk is reserved with the key of a node alone, or with none if
// there is no node.
func (f *failover) expectHolder(node string, epoch int64) {
	f.Helper()
	state, err := reservation.Reservations{}.Read(f.Context(), f.devices[1])
	expect.Must(f.T, err)
	if node == "" {
		if state.Type != provisioner.NoReservation || len(state.Keys) > 0 {
			f.Errorf("the disk has %v, want no reservation and no keys", state)
		}
		return
	}
	disk, err := volumehandle.Parse(volumeID)
	expect.Must(f.T, err)
	uid, err := kube.UID(f.Context(), f.nodes[0].api)
	expect.Must(f.T, err)
	want, err := provisioner.NewReservationKey(provisioner.NewClusterIdentity(uid), epoch, node, disk.String())
	expect.Must(f.T, err)
	if state.Type != provisioner.WriteExclusive || state.Holder != want || len(state.Keys) != 1 {
		f.Errorf("the disk has %v, want it held for writing with %v alone", state, want)
	}
}

// path of the pod that uses the volume.
func (m *machine) pod() string {
	return filepath.Join(m.dir, "pods/0/volumes/kubernetes.io~csi/pv/mount")
}

// mount stages and publishes the volume.
func (m *machine) mount() {
	m.t.Helper()
	expect.Must(m.t, m.stage(m.t.Context()))
	m.t.Cleanup(func() { // after a failure only
		_ = unix.Unmount(m.pod(), unix.MNT_DETACH)
		_ = unix.Unmount(m.stagingPath(), unix.MNT_DETACH)
	})
	expect.Must(m.t, os.MkdirAll(filepath.Dir(m.pod()), 0o755))
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	_, err := m.csi().NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId:          volumeID,
		StagingTargetPath: m.stagingPath(),
		TargetPath:        m.pod(),
		VolumeCapability:  capability(),
	})
	expect.Must(m.t, err)
}

// unmount ends what mount began.
func (m *machine) unmount() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	_, err := m.csi().NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: m.pod()})
	expect.Must(m.t, err)
	expect.Must(m.t, m.unstage(m.t.Context()))
	if got := m.entries(); got != "" {
		m.t.Errorf("after the unstage: node %s reports %q, want nothing", m.name, got)
	}
}

// record is a numbered block of the pod's file.
func record(number uint64) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, number), 4096/8)
}

// write appends records past the page cache until a write fails. Each number that it sends was
// acknowledged by the disk. The channel is closed at the end.
func write(t *testing.T, file string) (acknowledged chan uint64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|unix.O_DIRECT|unix.O_DSYNC, 0o600)
	expect.Must(t, err)
	acknowledged = make(chan uint64, 1<<14)
	// direct I/O needs aligned memory
	buffer, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	expect.Must(t, err)
	go func() {
		defer close(acknowledged)
		defer f.Close()
		for number := range uint64(cap(acknowledged)) {
			copy(buffer, record(number))
			if _, err := f.Write(buffer); err != nil {
				t.Logf("after %d writes: %v", number, err)
				return
			}
			acknowledged <- number
		}
		t.Errorf("the disk took %d writes, and none was refused", cap(acknowledged))
	}()
	return acknowledged
}

func TestAFailoverOnASharedSCSIDisk(t *testing.T) {
	f := newFailover(t)
	a, b := f.nodes[0], f.nodes[1]
	a.mount()
	f.expectHolder(nodeName, 1)
	file := filepath.Join(a.pod(), "records")
	acknowledged := write(t, file)
	last := <-acknowledged

	result := f.ask()
	if result.Key == "" {
		t.Fatalf("node-b has no proof: %s", result.Message)
	}
	for last = range acknowledged {
	}
	f.hand(result)
	b.mount()
	f.expectHolder("node-b", 2)
	got, err := os.ReadFile(filepath.Join(b.pod(), "records"))
	expect.Must(t, err)
	for number := range last + 1 {
		if at := int(number) * 4096; len(got) < at+4096 || !bytes.Equal(got[at:at+4096], record(number)) {
			t.Fatalf("record %d of %d acknowledged ones is lost: the file has %d bytes", number, last+1, len(got))
		}
	}

	f.detach()
	a.unmount()
	b.await("the end of the fence", func() bool { return len(b.report().Status.FenceResults) == 0 })
	f.expectHolder("node-b", 2)
	b.unmount()
	f.expectHolder("", 0)
}
