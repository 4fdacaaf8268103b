package nodeplugin

import (
	"context"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// joinCluster makes the Node, as the kubelet does.
func (m *machine) joinCluster() *corev1.Node {
	m.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	if err := m.api.Create(m.t.Context(), node); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		for _, object := range []client.Object{node, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: m.name}}} {
			if err := m.api.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				m.t.Error(err)
			}
		}
	})
	node.Status.Conditions = []corev1.NodeCondition{{
		Type:   corev1.NodeReady,
		Status: corev1.ConditionTrue,
		Reason: "KubeletReady",
	}}
	if err := m.api.Status().Update(m.t.Context(), node); err != nil {
		m.t.Fatal(err)
	}
	return node
}

// install is what the kubelet does with a driver before it says that it has registered it: it asks
// for NodeGetInfo and writes the driver into the CSINode, which it makes if it is missing.
func (m *machine) install() {
	m.t.Helper()
	m.await("the registration socket", m.registrationThere)
	info, err := m.csi().NodeGetInfo(m.t.Context(), &csi.NodeGetInfoRequest{})
	if err != nil {
		m.t.Fatal(err)
	}
	driver := storagev1.CSINodeDriver{
		Name:        driverName,
		NodeID:      info.GetNodeId(),
		Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(info.GetMaxVolumesPerNode()))},
	}
	for key := range info.GetAccessibleTopology().GetSegments() {
		driver.TopologyKeys = append(driver.TopologyKeys, key)
	}
	slices.Sort(driver.TopologyKeys)
	found := m.csiNode()
	found.Spec.Drivers = []storagev1.CSINodeDriver{driver}
	if found.ResourceVersion == "" {
		err = m.api.Create(m.t.Context(), found)
	} else {
		err = m.api.Update(m.t.Context(), found)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.register("")
}

func (m *machine) registrationThere() bool {
	_, err := os.Lstat(m.registration())
	return err == nil
}

func (m *machine) csiNode() *storagev1.CSINode {
	m.t.Helper()
	found := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	if err := m.api.Get(m.t.Context(), client.ObjectKey{Name: m.name}, found); client.IgnoreNotFound(err) != nil {
		m.t.Fatal(err)
	}
	return found
}

// saysReady is the condition Ready of the AzDriverNode in one line.
func (m *machine) saysReady() string {
	m.t.Helper()
	c := meta.FindStatusCondition(m.report().Status.Conditions, apiv1.NodeConditionPluginReady)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

func (m *machine) awaitReady(want string) {
	m.t.Helper()
	m.await("the condition Ready "+want, func() bool { return m.saysReady() == want })
}

func TestADriverThatACSINodeForgetsRegistersAgain(t *testing.T) {
	for name, forget := range map[string]func(*testing.T, *machine){
		"because the object was deleted": func(t *testing.T, m *machine) {
			expect.Must(t, m.api.Delete(t.Context(), m.csiNode()))
		},
		"because a user removed the driver": func(t *testing.T, m *machine) {
			found := m.csiNode()
			found.Spec.Drivers = nil
			expect.Must(t, m.api.Update(t.Context(), found))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.joinCluster()
			m.start()
			m.install()
			m.awaitReady("True/Registered")
			driver := m.csiNode().Spec.Drivers[0]
			if driver.NodeID != m.name || *driver.Allocatable.Count < 1 || len(driver.TopologyKeys) != 2 {
				t.Errorf("the kubelet was told %+v", driver)
			}
			before, err := os.Lstat(m.registration())
			expect.Must(t, err)
			forget(t, m)
			m.await("a new registration socket", func() bool {
				now, err := os.Lstat(m.registration())
				// The new one may have the inode of the old one.
				return err == nil && !now.ModTime().Equal(before.ModTime())
			})
			m.awaitReady("False/NotInCSINode")
			m.install()
			m.awaitReady("True/Registered")
			if err := m.stop(syscall.SIGTERM); err != nil {
				t.Errorf("after SIGTERM: %v", err)
			}
			if got := m.saysReady(); got != "False/Stopped" {
				t.Errorf("after the end: Ready is %q", got)
			}
		})
	}
}

// A driver that is not registered yet is not in the CSINode either: that is no reason to hurry the
// kubelet.
func TestADriverThatIsNotRegisteredYetLeavesTheSocketAlone(t *testing.T) {
	m := newMachine(t)
	m.joinCluster()
	m.start()
	m.await("the registration socket", m.registrationThere)
	before, err := os.Lstat(m.registration())
	expect.Must(t, err)
	csiNode := m.csiNode()
	expect.Must(t, m.api.Create(t.Context(), csiNode))
	expect.Must(t, m.api.Delete(t.Context(), csiNode))
	heartbeat := m.report().Status.HeartbeatTime
	m.await("further heartbeats", func() bool { return m.report().Status.HeartbeatTime.After(heartbeat.Add(2 * time.Second)) })
	if now, err := os.Lstat(m.registration()); err != nil || !now.ModTime().Equal(before.ModTime()) {
		t.Errorf("the socket was made again: %v", err)
	}
}

// use has a volume staged on the machine.
func (m *machine) use() {
	m.t.Helper()
	_, attachment := m.publish(1, 1)
	_, attach := m.newDisk(lun)
	attachment.Status.State, attachment.Status.LUN = apiv1.AttachmentAttached, ptr.To(lun)
	if err := m.api.Status().Update(m.t.Context(), attachment); err != nil {
		m.t.Fatal(err)
	}
	attach()
	if err := m.stage(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

func TestAPluginThatIsToldToStop(t *testing.T) {
	cordon := func(node *corev1.Node) { node.Spec.Unschedulable = true }
	taint := func(key string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	for name, test := range map[string]struct {
		edit  func(*corev1.Node)
		waits bool
	}{
		"stops at once on a node that stays":                       {func(*corev1.Node) {}, false},
		"outlasts the volumes of a node that is cordoned":          {cordon, true},
		"outlasts the volumes of a node that is scaled down":       {taint("ToBeDeletedByClusterAutoscaler"), true},
		"outlasts the volumes of a node that Karpenter takes away": {taint("karpenter.sh/disrupted"), true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			node := m.joinCluster()
			m.start()
			m.install()
			m.use()
			test.edit(node)
			expect.Must(t, m.api.Update(t.Context(), node))
			expect.Must(t, m.process.Process.Signal(syscall.SIGTERM))
			if test.waits {
				// It serves on, and heartbeats go on.
				heartbeat := m.report().Status.HeartbeatTime
				m.await("a further heartbeat", func() bool { return m.report().Status.HeartbeatTime.After(heartbeat.Time) })
				if err := m.unstage(t.Context()); err != nil {
					t.Errorf("unstage after SIGTERM: %v", err)
				}
			}
			if err := m.ended(); err != nil {
				t.Errorf("after SIGTERM: %v, want exit code 0", err)
			}
			if want := map[bool]string{true: "", false: volume + ":1:Staged"}[test.waits]; m.entries() != want {
				t.Errorf("entries = %q, want %q", m.entries(), want)
			}
			if got := m.saysReady(); got != "False/Stopped" {
				t.Errorf("after the end: Ready is %q", got)
			}
			if !test.waits {
				m.start()
				m.install()
				m.awaitReady("True/Registered")
				if err := m.unstage(t.Context()); err != nil {
					t.Errorf("unstage by the next process: %v", err)
				}
			}
		})
	}
}
