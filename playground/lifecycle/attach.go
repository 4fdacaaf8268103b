package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const attaching = "attaching"

type attachment = storagev1.VolumeAttachment

var attachTests = []Test{
	{Topic: attaching, Name: "a pod waits until its volume is attached", Disturbs: true, run: waitsForTheAttach},
	{Topic: attaching, Name: "the volume is attached through a VolumeAttachment of this driver", run: attachesByObject},
	{Topic: attaching, Name: "the volume is detached when the pod has ended", run: detachesAfterTheEnd},
	{Topic: attaching, Name: "a volume of one node does not go to a second one while the first has it", run: refusesSecondNode},
}

// fault adds a rule to azuresim's faults. lift removes it.
func (t *bench) fault(ctx context.Context, rule map[string]any) (lift func(context.Context) error, err error) {
	var added struct {
		ID string `json:"id"`
	}
	if err := t.admin(ctx, http.MethodPost, "/admin/faults", rule, &added); err != nil {
		return nil, fmt.Errorf("add a fault to azuresim: %w", err)
	}
	lifted := false
	lift = func(ctx context.Context) error {
		if lifted {
			return nil
		}
		lifted = true
		return t.admin(ctx, http.MethodDelete, "/admin/faults/"+added.ID, nil, nil)
	}
	t.later("lift the fault", lift)
	return lift, nil
}

// admin calls azuresim's admin API.
func (t *bench) admin(ctx context.Context, method, path string, in, out any) error {
	admin, err := t.AzureAdmin(ctx)
	if err != nil {
		return err
	}
	return admin.Call(ctx, method, path, in, out)
}

func waitsForTheAttach(ctx context.Context, t *bench) error {
	if err := t.data(ctx, "4Gi"); err != nil {
		return err
	}
	lift, err := t.fault(ctx, map[string]any{
		"method": "POST", "kind": "virtualMachines", "name": t.node, "action": "attachDetachDataDisks",
		"status": http.StatusServiceUnavailable, "code": "ServiceUnavailable",
	})
	if err != nil {
		return err
	}
	if err := t.pod(ctx, "waiting", []string{"data"}); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	err = await(ctx, "the attach has been refused", func(ctx context.Context) error {
		a, err := t.attachment(ctx, pv.Name, t.node)
		if err != nil || a == nil {
			return errors.Join(err, errors.New("there is no VolumeAttachment"))
		}
		if a.Status.Attached {
			return never("the VolumeAttachment says that the disk is attached, and it cannot be")
		}
		return check(a.Status.AttachError != nil, "nothing is said yet")
	})
	if err != nil {
		return err
	}
	pod, err := t.awaitPod(ctx, "waiting", "is on its node", func(p *corev1.Pod) error {
		return check(p.Spec.NodeName == t.node, "it is on %q", p.Spec.NodeName)
	})
	if err != nil {
		return err
	}
	list, err := t.mounts(ctx, t.node)
	if err != nil {
		return err
	}
	err = errors.Join(
		check(pod.Status.Phase == corev1.PodPending, "the pod is %s before the disk is attached", pod.Status.Phase),
		check(len(at(list, globalPath(pv))) == 0, "the volume is mounted before the disk is attached"),
	)
	if err != nil {
		return err
	}
	if err := lift(ctx); err != nil {
		return err
	}
	if _, err := t.awaitRunning(ctx, "waiting"); err != nil {
		return err
	}
	a, err := t.attachment(ctx, pv.Name, t.node)
	if err != nil {
		return err
	}
	return check(a != nil && a.Status.Attached, "the pod runs, and its volume is not said to be attached")
}

func attachesByObject(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	a, err := t.attachment(ctx, pv.Name, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	if a == nil {
		return errors.New("there is no VolumeAttachment of the volume and the pod's node")
	}
	node, err := t.Plan.Node(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return err
	}
	return errors.Join(
		check(a.Spec.Attacher == driverName, "its attacher is %s", a.Spec.Attacher),
		check(a.Status.Attached, "it is not said to be attached"),
		check(slices.Contains(a.Finalizers, "external-attacher/disk-csi-azure-com"), "its finalizers are %v", a.Finalizers),
		check(disk.attachedTo(node), "at Azure the disk is attached to %s", disk.ManagedBy),
	)
}

// awaitDetached waits until neither Kubernetes nor the driver nor Azure have the volume at the
// node.
func (t *bench) awaitDetached(ctx context.Context, pv *corev1.PersistentVolume, name string) error {
	node, err := t.Plan.Node(name)
	if err != nil {
		return err
	}
	return await(ctx, "the volume is detached from "+name, func(ctx context.Context) error {
		a, err := t.attachment(ctx, pv.Name, name)
		if err != nil {
			return err
		}
		if a != nil {
			return fmt.Errorf("VolumeAttachment %s is there", a.Name)
		}
		disk, err := t.disk(ctx, pv)
		if err != nil {
			return err
		}
		return check(!disk.attachedTo(node) && disk.Properties.State == "Unattached", "at Azure the disk is %s",
			disk.Properties.State)
	})
}

func detachesAfterTheEnd(ctx context.Context, t *bench) error {
	if err := t.data(ctx, "4Gi"); err != nil {
		return err
	}
	if err := t.pod(ctx, "short", []string{"data"}, ending); err != nil {
		return err
	}
	pod, err := t.awaitPod(ctx, "short", "has ended", func(p *corev1.Pod) error {
		return check(p.Status.Phase == corev1.PodSucceeded, "it is %s", p.Status.Phase)
	})
	if err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	return t.awaitDetached(ctx, pv, pod.Spec.NodeName)
}

func refusesSecondNode(ctx context.Context, t *bench) error {
	if err := t.data(ctx, "4Gi"); err != nil {
		return err
	}
	a, b := t.pair()
	if _, err := t.run(ctx, "first", []string{"data"}, on(a)); err != nil {
		return err
	}
	if err := t.pod(ctx, "second", []string{"data"}, on(b)); err != nil {
		return err
	}
	if _, err := t.awaitEvent(ctx, "second", "FailedAttachVolume"); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return err
	}
	if len(disk.ManagedByExtended) > 1 {
		return fmt.Errorf("the disk is attached to %v", disk.ManagedByExtended)
	}
	if err := t.deletePod(ctx, "first"); err != nil {
		return err
	}
	_, err = t.awaitRunning(ctx, "second")
	return err
}
