package lifecycle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

const (
	mounting   = "mounting"
	kubeletDir = "/var/lib/kubelet"
)

var mountTests = []Test{
	{Topic: mounting, Name: "a volume is mounted once on a node and bound into each of its pods", run: mountsOnce},
	{Topic: mounting, Name: "unmount, unstage and detach come in this order", run: unmountsInOrder},
	{Topic: mounting, Name: "a read-only mount refuses to be written to", run: readsOnly},
	{Topic: mounting, Name: "fsGroup, subPath and mount options reach the pod", run: mountsAsAsked},
}

// mount is a line of a mount table.
type mount struct {
	// device is major:minor.
	device, target, options string
}

// mounts reads a node's mount table.
func (t *bench) mounts(ctx context.Context, node string) ([]mount, error) {
	process, err := t.Process(ctx, node)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		return nil, err
	}
	var list []mount
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 5 {
			list = append(list, mount{
				device:  f[2],
				target:  f[4],
				options: f[5],
			})
		}
	}
	return list, nil
}

// globalPath is where a kubelet has a volume mounted for all its pods.
func globalPath(pv *corev1.PersistentVolume) string {
	return fmt.Sprintf("%s/plugins/kubernetes.io/csi/%s/%x/globalmount", kubeletDir, driverName,
		sha256.Sum256([]byte(pv.Spec.CSI.VolumeHandle)))
}

// podPath is where a kubelet has a volume mounted for one pod.
func podPath(pod *corev1.Pod, pv *corev1.PersistentVolume) string {
	return fmt.Sprintf("%s/pods/%s/volumes/kubernetes.io~csi/%s/mount", kubeletDir, pod.UID, pv.Name)
}

// at returns the mounts with that target.
func at(list []mount, target string) []mount {
	var found []mount
	for _, m := range list {
		if m.target == target {
			found = append(found, m)
		}
	}
	return found
}

func mountsOnce(ctx context.Context, t *bench) error {
	first, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	second, err := t.run(ctx, "second", []string{"data"}, on(first.Spec.NodeName))
	if err != nil {
		return err
	}
	list, err := t.mounts(ctx, first.Spec.NodeName)
	if err != nil {
		return err
	}
	global := at(list, globalPath(pv))
	if len(global) != 1 {
		return fmt.Errorf("the volume is mounted %d times at %s", len(global), globalPath(pv))
	}
	of := 0
	for _, m := range list {
		if m.device == global[0].device {
			of++
		}
	}
	// The global mount and one for each pod, and no other of this device.
	err = errors.Join(
		check(len(at(list, podPath(first, pv))) == 1 && at(list, podPath(first, pv))[0].device == global[0].device,
			"the first pod has no mount of the device"),
		check(len(at(list, podPath(second, pv))) == 1 && at(list, podPath(second, pv))[0].device == global[0].device,
			"the second pod has no mount of the device"),
		check(of == 3, "the device is mounted %d times", of),
	)
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, first.Name, "put", filePath("data", "file"), "from the first"); err != nil {
		return err
	}
	if err := t.expect(ctx, "from the first", second.Name, "cat", filePath("data", "file")); err != nil {
		return err
	}
	if err := t.deletePod(ctx, second.Name); err != nil {
		return err
	}
	if err := t.awaitPodGone(ctx, second.Name); err != nil {
		return err
	}
	if list, err = t.mounts(ctx, first.Spec.NodeName); err != nil {
		return err
	}
	return errors.Join(
		check(len(at(list, podPath(second, pv))) == 0, "the second pod has gone, and its mount has not"),
		check(len(at(list, globalPath(pv))) == 1 && len(at(list, podPath(first, pv))) == 1,
			"the first pod's mounts have gone with the second pod"),
		t.expect(ctx, "from the first", first.Name, "cat", filePath("data", "file")),
	)
}

func unmountsInOrder(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	node, err := t.Plan.Node(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	if err := t.deletePod(ctx, pod.Name); err != nil {
		return err
	}
	var seen []string
	return await(ctx, "the volume is detached", func(ctx context.Context) error {
		s, err := t.release(ctx, node, pod, pv)
		if err != nil {
			return err
		}
		state := s.String()
		if len(seen) == 0 || seen[len(seen)-1] != state {
			seen = append(seen, state)
		}
		// What is later in the order was looked at first: so it must not be over while
		// something before it is not.
		switch {
		case s.unstaged && !s.unpublished:
			return never("the node unmounted the volume before the pod did: %s", strings.Join(seen, "; "))
		case s.detached && !s.unstaged:
			return never("the disk was detached before the node unmounted it: %s", strings.Join(seen, "; "))
		case !s.detached:
			return errors.New(state)
		}
		return nil
	})
}

// released is how far the release of a volume has come.
type released struct{ unpublished, unstaged, detached bool }

func (r released) String() string {
	return fmt.Sprintf("unmounted from the pod: %t, from the node: %t, detached: %t", r.unpublished, r.unstaged, r.detached)
}

// release looks in the order that is the reverse of what should happen.
func (t *bench) release(ctx context.Context, node topology.Node, pod *corev1.Pod, pv *corev1.PersistentVolume) (released, error) {
	var s released
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return s, err
	}
	s.detached = !disk.attachedTo(node)
	list, err := t.mounts(ctx, node.Name)
	if err != nil {
		return s, err
	}
	// One mount table shows both at the same moment.
	s.unstaged = len(at(list, globalPath(pv))) == 0
	s.unpublished = len(at(list, podPath(pod, pv))) == 0
	return s, nil
}

// pair are two nodes of one zone that are not disturbed.
func (t *bench) pair() (a, b string) { return t.Plan.Nodes[0].Name, t.Plan.Nodes[2].Name }

func readsOnly(ctx context.Context, t *bench) error {
	pod, _, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "for readers"); err != nil {
		return err
	}
	reader, err := t.run(ctx, "reader", []string{"data"}, on(pod.Spec.NodeName), func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts[0].ReadOnly = true
	})
	if err != nil {
		return err
	}
	if err := t.expect(ctx, "for readers", reader.Name, "cat", filePath("data", "file")); err != nil {
		return err
	}
	_, err = t.probe(ctx, reader.Name, "put", filePath("data", "other"), "not allowed")
	return check(err != nil && strings.Contains(err.Error(), "read-only"), "a write came to: %v", err)
}

func mountsAsAsked(ctx context.Context, t *bench) error {
	if err := t.data(ctx, "4Gi", mountOptions("noatime")); err != nil {
		return err
	}
	const group = int64(4242)
	pod, err := t.run(ctx, "user", []string{"data"}, func(p *corev1.Pod) {
		fsGroup, user, container := group, int64(1000), &p.Spec.Containers[0]
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &fsGroup, RunAsUser: &user}
		part := container.VolumeMounts[0]
		part.MountPath, part.SubPath = dataDir+"/part", "part"
		container.VolumeMounts = append(container.VolumeMounts, part)
	})
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", dataDir+"/part/file", "by its part"); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	list, err := t.mounts(ctx, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	global := at(list, globalPath(pv))
	shown, err := t.probe(ctx, pod.Name, "show", dataDir+"/data")
	return errors.Join(err,
		t.expect(ctx, "by its part", pod.Name, "cat", filePath("data", "part/file")),
		check(strings.Contains(shown, fmt.Sprint("group ", group)), "the volume is %q", shown),
		check(len(global) == 1 && strings.Contains(global[0].options, "noatime"), "the volume is mounted as %+v", global),
	)
}

// attachment returns the VolumeAttachment of a volume to a node, or nil.
func (t *bench) attachment(ctx context.Context, pv, node string) (*attachment, error) {
	list, err := t.kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		a := &list.Items[i]
		if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == pv && a.Spec.NodeName == node {
			return a, nil
		}
	}
	return nil, nil
}
