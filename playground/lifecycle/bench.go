package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// bench is what one test works with: its namespace, and what has to be undone.
type bench struct {
	*world
	namespace string
	// node is where the test's pods go, or "".
	node string
	undo []undo
}

// undo takes back something that does not go with the namespace.
type undo struct {
	what string
	do   func(context.Context) error
}

func (w *world) newBench(ctx context.Context, node string) (*bench, error) {
	ns, err := w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "lifecycle-", Labels: map[string]string{testLabel: "true"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make a namespace: %w", err)
	}
	t := &bench{
		world:     w,
		namespace: ns.Name,
		node:      node,
	}
	// Pods need the account.
	return t, await(ctx, "the namespace has its service account", func(ctx context.Context) error {
		_, err := w.kube.CoreV1().ServiceAccounts(t.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// later has something undone at the end of the test, the last thing first.
func (t *bench) later(what string, do func(context.Context) error) {
	t.undo = append(t.undo, undo{what, do})
}

// cleanUp deletes the test's pods, undoes what it did outside of its namespace, and has the
// namespace deleted. It does not wait for the namespace.
func (t *bench) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	err := t.kube.CoreV1().Pods(t.namespace).DeleteCollection(ctx, now, metav1.ListOptions{})
	for i := len(t.undo) - 1; i >= 0; i-- {
		if undone := t.undo[i].do(ctx); undone != nil && !apierrors.IsNotFound(undone) {
			err = errors.Join(err, fmt.Errorf("%s: %w", t.undo[i].what, undone))
		}
	}
	return errors.Join(err, t.kube.CoreV1().Namespaces().Delete(ctx, t.namespace, metav1.DeleteOptions{}))
}

// describe describes the test's objects after a failure.
func (t *bench) describe(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var text strings.Builder
	if pods, err := t.kube.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range pods.Items {
			fmt.Fprintf(&text, "pod %s on %q is %s\n", p.Name, p.Spec.NodeName, p.Status.Phase)
		}
	}
	if claims, err := t.kube.CoreV1().PersistentVolumeClaims(t.namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, c := range claims.Items {
			fmt.Fprintf(&text, "claim %s with volume %q is %s\n", c.Name, c.Spec.VolumeName, c.Status.Phase)
		}
	}
	if events, err := t.kube.CoreV1().Events(t.namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, e := range events.Items {
			fmt.Fprintf(&text, "event %s of %s %s: %s\n", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
		}
	}
	return text.String()
}

// awaitEvent waits for an event of that reason about the named object, and returns its message.
func (t *bench) awaitEvent(ctx context.Context, object, reason string) (string, error) {
	message := ""
	selector := fields.Set{"involvedObject.name": object, "reason": reason}.AsSelector().String()
	err := await(ctx, object+" has an event "+reason, func(ctx context.Context) error {
		events, err := t.kube.CoreV1().Events(t.namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("there is none")
		}
		message = events.Items[0].Message
		return nil
	})
	return message, err
}

// probe runs the probe in a pod and returns what it printed.
func (t *bench) probe(ctx context.Context, pod string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, t.kubectl,
		append([]string{"exec", "--namespace", t.namespace, pod, "--", "/probe"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+t.Dir.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("probe %v in %s: %w: %s", args, pod, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// expect runs the probe in a pod and checks what it printed.
func (t *bench) expect(ctx context.Context, want, pod string, args ...string) error {
	got, err := t.probe(ctx, pod, args...)
	if err == nil && got != want {
		err = fmt.Errorf("probe %v in %s: got %q, want %q", args, pod, got, want)
	}
	return err
}

// azureDisk is a disk as Azure shows it.
type azureDisk struct {
	ID    string            `json:"id"`
	Zones []string          `json:"zones"`
	Tags  map[string]string `json:"tags"`
	SKU   struct {
		Name string `json:"name"`
	} `json:"sku"`
	ManagedBy         string   `json:"managedBy"`
	ManagedByExtended []string `json:"managedByExtended"`
	Properties        struct {
		SizeGB    int64  `json:"diskSizeGB"`
		State     string `json:"diskState"`
		IOPS      int64  `json:"diskIOPSReadWrite"`
		MBps      int64  `json:"diskMBpsReadWrite"`
		MaxShares int    `json:"maxShares"`
	} `json:"properties"`
}

// attachedTo reports whether the disk is attached to the node's VM.
func (d azureDisk) attachedTo(node topology.Node) bool {
	for _, vm := range append(d.ManagedByExtended, d.ManagedBy) {
		if strings.EqualFold(vm, node.ResourceID()) {
			return true
		}
	}
	return false
}

// disk asks Azure for the disk of a volume.
func (t *bench) disk(ctx context.Context, pv *corev1.PersistentVolume) (azureDisk, error) {
	var disk azureDisk
	return disk, t.arm.Get(ctx, pv.Spec.CSI.VolumeHandle, diskVersion, &disk)
}

// awaitDiskGone waits until Azure has no such disk.
func (t *bench) awaitDiskGone(ctx context.Context, pv *corev1.PersistentVolume) error {
	return await(ctx, "the disk of "+pv.Name+" is deleted at Azure", func(ctx context.Context) error {
		_, err := t.disk(ctx, pv)
		switch {
		case err == nil:
			return errors.New("it is there")
		case strings.HasPrefix(err.Error(), "404"):
			return nil
		}
		return err
	})
}
