package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
)

const (
	registration = "registration"

	registrarSocket = kubeletDir + "/plugins_registry/" + driverName + "-reg.sock"
	driverSocket    = kubeletDir + "/plugins/" + driverName + "/csi.sock"
	startupTaint    = driverName + "/agent-not-ready"
	// dataDisks is what the nodes' VMs take.
	dataDisks = 16
)

var registrationTests = []Test{
	{Topic: registration, Name: "the sockets of registrar and driver are where the kubelet looks", run: hasSockets},
	{
		Topic: registration,
		Name:  "every CSINode has the driver with node ID, topology keys and the number of disks",
		run:   fillsCSINode,
	},
	{
		Topic:    registration,
		Name:     "the registrar's socket goes with the plug-in, and the next plug-in registers again",
		Disturbs: true,
		run:      registersAgain,
	},
	{
		Topic:    registration,
		Name:     "a pod that comes while the plug-in is away runs when it is back",
		Disturbs: true,
		run:      waitsForThePlugIn,
	},
	{
		Topic:    registration,
		Name:     "the start-up taint is taken from a node whose plug-in is ready",
		Disturbs: true,
		run:      removesTaint,
	},
}

// file looks at a file of a node.
func (t *bench) file(ctx context.Context, node, path string) (os.FileInfo, error) {
	process, err := t.Process(ctx, node)
	if err != nil {
		return nil, err
	}
	return os.Lstat(filepath.Join(process, "root", path))
}

func hasSockets(ctx context.Context, t *bench) error {
	var errs []error
	for _, node := range t.Plan.Nodes {
		for _, path := range []string{registrarSocket, driverSocket} {
			if node.Name == t.disturbed {
				continue
			}
			info, err := t.file(ctx, node.Name, path)
			if err == nil && info.Mode()&fs.ModeSocket == 0 {
				err = fmt.Errorf("%s is no socket", path)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", node.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// driverOf returns what a CSINode says of the driver, or nil.
func (t *bench) driverOf(ctx context.Context, node string) (*storagev1.CSINodeDriver, *storagev1.CSINode, error) {
	n, err := t.kube.StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	for i := range n.Spec.Drivers {
		if n.Spec.Drivers[i].Name == driverName {
			return &n.Spec.Drivers[i], n, nil
		}
	}
	return nil, n, nil
}

func (t *bench) checkCSINode(ctx context.Context, name string) error {
	d, n, err := t.driverOf(ctx, name)
	if err != nil {
		return err
	}
	if d == nil {
		return fmt.Errorf("the CSINode %s does not have the driver", name)
	}
	return errors.Join(
		check(d.NodeID == name, "its node ID is %q", d.NodeID),
		check(slices.Contains(d.TopologyKeys, zoneKey), "its topology keys are %v", d.TopologyKeys),
		check(d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count > 0 && *d.Allocatable.Count <= dataDisks,
			"it takes %+v disks", d.Allocatable),
		check(len(n.OwnerReferences) == 1 && n.OwnerReferences[0].Kind == "Node" && n.OwnerReferences[0].Name == name,
			"it belongs to %+v", n.OwnerReferences),
	)
}

func fillsCSINode(ctx context.Context, t *bench) error {
	var errs []error
	for _, node := range t.Plan.Nodes {
		if node.Name != t.disturbed {
			errs = append(errs, t.checkCSINode(ctx, node.Name))
		}
		n, err := t.kube.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		errs = append(errs, check(node.Name == t.disturbed || n.Labels[zoneKey] == node.ZoneLabel(), "the labels of %s are %v",
			node.Name, n.Labels))
	}
	return errors.Join(errs...)
}

// plugIn returns the pod of the node plug-in on the disturbed node.
func (t *bench) plugIn(ctx context.Context) (*corev1.Pod, error) {
	pods, err := t.kube.CoreV1().Pods(cluster.DriverNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=node",
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", t.node).String(),
	})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i], nil
		}
	}
	return nil, errors.New("the node has no plug-in")
}

// awaitRegistered waits until CSINode and AzDriverNode say that the plug-in is ready, after an
// earlier one of that UID.
func (t *bench) awaitRegistered(ctx context.Context, earlier types.UID) error {
	return await(ctx, "the plug-in is registered", func(ctx context.Context) error {
		pod, err := t.plugIn(ctx)
		if err != nil {
			return err
		}
		if pod.UID == earlier {
			return errors.New("the earlier one is still there")
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
				return errors.New("it is not ready")
			}
		}
		ready, err := t.plugInReady(ctx)
		return errors.Join(err, check(ready == "True", "its AzDriverNode is %q", ready), t.checkCSINode(ctx, t.node))
	})
}

func (t *bench) plugInReady(ctx context.Context) (string, error) {
	n, err := t.dyn.Resource(azDriverNodes).Namespace(cluster.DriverNamespace).Get(ctx, t.node, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	conditions, _, err := unstructured.NestedSlice(n.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "PluginReady" {
			return fmt.Sprint(c["status"]), nil
		}
	}
	return "", err
}

func registersAgain(ctx context.Context, t *bench) error {
	old, err := t.plugIn(ctx)
	if err != nil {
		return err
	}
	before, err := t.file(ctx, t.node, registrarSocket)
	if err != nil {
		return err
	}
	if err := t.kube.CoreV1().Pods(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	// The old plug-in takes its socket away when it is asked to end; the next makes another.
	err = await(ctx, "the socket is gone", func(ctx context.Context) error {
		now, err := t.file(ctx, t.node, registrarSocket)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, check(now != nil && !sameFile(before, now), "it is there"))
	})
	if err != nil {
		return err
	}
	if err := t.awaitRegistered(ctx, old.UID); err != nil {
		return err
	}
	now, err := t.file(ctx, t.node, registrarSocket)
	if err != nil {
		return err
	}
	return check(!sameFile(before, now), "the socket is still that of the plug-in which has gone")
}

// sameFile tells files apart also where a number of a file is used again at once.
func sameFile(a, b os.FileInfo) bool {
	x, y := a.Sys().(*syscall.Stat_t), b.Sys().(*syscall.Stat_t)
	return x.Ino == y.Ino && x.Ctim == y.Ctim
}

func waitsForThePlugIn(ctx context.Context, t *bench) error {
	old, err := t.plugIn(ctx)
	if err != nil {
		return err
	}
	if _, err := t.bound(ctx, "4Gi", parameters("skuName", "Premium_ZRS")); err != nil {
		return err
	}
	if err := t.kube.CoreV1().Pods(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	// Not asked of the scheduler, which would not put it there as long as the driver is away.
	if err := t.pod(ctx, "early", []string{"data"},
		func(p *corev1.Pod) { p.Spec.NodeSelector, p.Spec.NodeName = nil, t.node }); err != nil {
		return err
	}
	if _, err := t.awaitRunning(ctx, "early"); err != nil {
		return err
	}
	return t.awaitRegistered(ctx, old.UID)
}

func removesTaint(ctx context.Context, t *bench) error {
	old, err := t.plugIn(ctx)
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, startupTaint)
	if _, err := t.kube.CoreV1().Nodes().Patch(ctx, t.node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return err
	}
	// As on a node that has just started.
	if err := t.kube.CoreV1().Pods(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = await(ctx, "the taint is gone", func(ctx context.Context) error {
		node, err := t.kube.CoreV1().Nodes().Get(ctx, t.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		tainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == startupTaint })
		return check(!tainted, "it is there")
	})
	if err != nil {
		return err
	}
	return t.awaitRegistered(ctx, old.UID)
}
