package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

const settleTimeout = 2 * time.Minute

// awaitNodes makes a Node for each VM, without which its AzDriverNode would be
// cleaned up, and waits until every AzDriverNode is ready.
func (s *Stack) awaitNodes(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTimeout)
	defer cancel()
	err := s.Await(ctx, &apiv1.AzDriverNodeList{}, func(list client.ObjectList) string {
		ready := map[string]bool{}
		for _, node := range list.(*apiv1.AzDriverNodeList).Items {
			ready[node.Name] = meta.IsStatusConditionTrue(node.Status.Conditions, apiv1.NodeConditionPluginReady) &&
				node.Status.Capacity != nil
		}
		for _, node := range s.Nodes {
			if !ready[node.Name] {
				return "AzDriverNode " + node.Name + " is not ready or has no capacity"
			}
		}
		return ""
	})
	expect.Must(t, err)
}

// MakeNode makes the Node object of a VM, unless it is there.
func (s *Stack) MakeNode(t testing.TB, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelTopologyZone: s.Zone, corev1.LabelTopologyRegion: Location, corev1.LabelInstanceTypeStable: s.options.VMSize,
		TopologyKey: s.Zone,
	}}}
	err := s.Kube.Create(t.Context(), node)
	if apierrors.IsAlreadyExists(err) {
		return
	}
	expect.Must(t, err)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Stack"}}
	expect.Must(t, s.Kube.Status().Update(t.Context(), node))
	t.Cleanup(func() {
		if err := s.Kube.Delete(context.WithoutCancel(t.Context()), node); err != nil {
			t.Log(err)
		}
	})
}

// Await waits, by watching, until check finds nothing missing in the list.
func (s *Stack) Await(ctx context.Context, list client.ObjectList, check func(client.ObjectList) string) error {
	for {
		if err := s.Kube.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		missing := check(list)
		if missing == "" {
			return nil
		}
		watcher, err := s.Kube.Watch(ctx, list, client.InNamespace(s.Namespace),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			return fmt.Errorf("%s; watch: %w", missing, err)
		}
		ok := nextEvent(ctx, watcher)
		watcher.Stop()
		if !ok {
			return fmt.Errorf("%s: %w", missing, ctx.Err())
		}
	}
}

func nextEvent(ctx context.Context, watcher watch.Interface) bool {
	select {
	case <-ctx.Done():
		return false
	case <-watcher.ResultChan():
		return true
	}
}

// AssertNothingLeft waits until no custom resource of a volume is left, and then looks for disks at
// Azure, attachments, devices and mounts.
func (s *Stack) AssertNothingLeft(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTimeout)
	defer cancel()
	none := func(list client.ObjectList) string {
		items, err := meta.ExtractList(list)
		if err != nil {
			return err.Error()
		}
		if len(items) == 0 {
			return ""
		}
		raw, _ := json.MarshalIndent(items[0], "", " ")
		return fmt.Sprintf("%d objects are left, the first: %s", len(items), raw)
	}
	for _, list := range []client.ObjectList{&apiv1.AzVolumeAttachmentList{}, &apiv1.AzVolumeList{}} {
		if err := s.Await(ctx, list, none); err != nil {
			t.Error(err)
		}
	}
	nodes := &apiv1.AzDriverNodeList{}
	if err := s.Kube.List(ctx, nodes, client.InNamespace(s.Namespace)); err != nil {
		t.Error(err)
	}
	for _, node := range nodes.Items {
		if len(node.Status.StagedVolumes) > 0 {
			t.Errorf("node %s still reports %v", node.Name, node.Status.StagedVolumes)
		}
	}
	for _, kind := range []string{"disks", "snapshots"} {
		if left := s.atAzure(t, kind); len(left) > 0 {
			t.Errorf("%s are left at Azure: %v", kind, left)
		}
	}
	for _, device := range s.loopDevices(t) {
		t.Errorf("loop device %s is left", device)
	}
	for _, mount := range s.mounts(t) {
		if !strings.HasPrefix(mount, s.hypervisorDir()+"/") {
			t.Errorf("mount %s is left", mount)
		}
	}
}

// Disk is a disk at Azure.
type Disk struct {
	SKU struct {
		Name string `json:"name"`
	} `json:"sku"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		SizeGB int64 `json:"diskSizeGB"`
	} `json:"properties"`
}

// Disk reads a disk.
func (s *Stack) Disk(ctx context.Context, id string) (disk Disk, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.arm+id+"?api-version="+disksV, nil)
	if err != nil {
		return disk, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return disk, err
	}
	defer response.Body.Close()
	return disk, json.NewDecoder(response.Body).Decode(&disk)
}

// atAzure lists the names of disks or snapshots.
func (s *Stack) atAzure(t testing.TB, kind string) []string {
	t.Helper()
	url := fmt.Sprintf("%s/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/%s?api-version=%s", s.arm, Subscription,
		ResourceGroup, kind, disksV)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	expect.Must(t, err)
	response, err := http.DefaultClient.Do(request)
	expect.Must(t, err)
	defer response.Body.Close()
	var list struct {
		Value []struct {
			Name string `json:"name"`
		} `json:"value"`
	}
	expect.Must(t, json.NewDecoder(response.Body).Decode(&list))
	names := make([]string, 0, len(list.Value))
	for _, item := range list.Value {
		names = append(names, item.Name)
	}
	return names
}

// loopDevices returns the loop devices of the stack's hypervisor. The files under them are in a
// filesystem that is mounted nowhere, so their names tell.
func (s *Stack) loopDevices(t testing.TB) []string {
	t.Helper()
	prefix, err := hypervisor.LoopPrefix(s.hypervisorDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	expect.Must(t, err)
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	expect.Must(t, err)
	var found []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // the device was cleared since it was listed
		}
		if strings.HasPrefix(filepath.Base(string(backing)), prefix) {
			found = append(found, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return found
}

// mounts returns the mount points below the stack's directory.
func (s *Stack) mounts(t testing.TB) []string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	expect.Must(t, err)
	var found []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], s.Dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}

// sweep runs when all processes have ended. What is left then was leaked; it is
// reported and removed.
func (s *Stack) sweep(t testing.TB) {
	for _, mount := range s.mounts(t) {
		t.Errorf("mount %s was leaked", mount)
		unmount(t, mount)
	}
	for _, device := range s.loopDevices(t) {
		t.Errorf("loop device %s was leaked", device)
		detach(t, device)
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Error(err)
	}
}
