// Package volumetest tries the installed driver: it creates a volume, moves it between two nodes
// and deletes it. `helm test` runs it.
package volumetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	pollInterval = 200 * time.Millisecond
	// cleanUpTimeout is for Azure, which detaches the disk before it deletes it.
	cleanUpTimeout = 5 * time.Minute
	file           = "/data/proof"
)

// Options of a test.
type Options struct {
	Client client.Client
	Clock  clock.PassiveClock
	// Namespace of the claim and the pods, Name of the claim and first part of the names of the
	// pods.
	Namespace, Name string
	// Image of the driver. The pods run its commands.
	Image string
	// PullSecrets are the names of Secrets for pulling it.
	PullSecrets []string
	// StorageClass and Size of the volume.
	StorageClass string
	Size         resource.Quantity
	// Timeout of the test without the clean-up.
	Timeout time.Duration
	// Say prints a line about what was done.
	Say func(format string, args ...any)
}

// Run writes to a new volume in one pod, moves the volume to a pod on another node, and compares
// what it reads there. It deletes what it created, in any case, and returns the first failure. Of a StorageClass that
// retains its volumes the PersistentVolume stays, which is a failure.
func Run(ctx context.Context, o Options) error {
	err := func() error {
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		return o.move(ctx)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	return errors.Join(err, o.cleanUp(ctx))
}

func (o Options) move(ctx context.Context) error {
	start := o.Clock.Now()
	if err := o.Client.Create(ctx, o.claim()); err != nil {
		return fmt.Errorf("create the claim: %w", err)
	}
	writer, reader := o.pod("writer"), o.pod("reader")
	// The pod is ready when its init container has written, and ends when it is deleted.
	writer.Spec.InitContainers = []corev1.Container{o.container("write", "write", file, o.Name)}
	writer.Spec.Containers = []corev1.Container{o.container("hold", "hold")}
	reader.Spec.Containers = []corev1.Container{o.container("read", "read", file, o.Name)}
	if err := o.Client.Create(ctx, writer); err != nil {
		return fmt.Errorf("create the pod that writes: %w", err)
	}
	if err := o.await(ctx, writer, isReady); err != nil {
		return err
	}
	o.Say("node %s: a new volume of StorageClass %s is written to after %s", writer.Spec.NodeName, o.StorageClass, o.since(start))

	avoid(reader, writer.Spec.NodeName)
	start = o.Clock.Now()
	if err := o.Client.Delete(ctx, writer); err != nil {
		return fmt.Errorf("delete the pod that writes: %w", err)
	}
	if err := o.read(ctx, reader); err != nil {
		return err
	}
	o.Say("node %s: what was written is read %s after the pod was deleted", reader.Spec.NodeName, o.since(start))
	return nil
}

// read creates the pod that reads. If it fits on no other node, because there is none that reaches
// the disk, it is created for any node.
func (o Options) read(ctx context.Context, reader *corev1.Pod) error {
	again := reader.DeepCopy()
	again.Spec.Affinity = nil
	again.Name += "-anywhere"
	if err := o.Client.Create(ctx, reader); err != nil {
		return fmt.Errorf("create the pod that reads: %w", err)
	}
	fitsNowhere := false
	err := o.await(ctx, reader, func(p *corev1.Pod) bool {
		fitsNowhere = condition(p, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable
		return fitsNowhere || p.Status.Phase == corev1.PodSucceeded
	})
	if err != nil || !fitsNowhere {
		return err
	}
	o.Say("the volume stays on its node, because the pod fits on no other: %s", condition(reader, corev1.PodScheduled).Message)
	if err := o.Client.Delete(ctx, reader); err != nil {
		return fmt.Errorf("delete the pod that fits on no other node: %w", err)
	}
	*reader = *again
	if err := o.Client.Create(ctx, reader); err != nil {
		return fmt.Errorf("create the pod that reads: %w", err)
	}
	return o.await(ctx, reader, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
}

func (o Options) since(start time.Time) time.Duration {
	return o.Clock.Since(start).Round(time.Millisecond)
}

func isReady(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == corev1.ConditionTrue }

// condition is empty if the pod does not have it.
func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// await reads the pod until it is as wanted. A pod that has failed never will be.
func (o Options) await(ctx context.Context, pod *corev1.Pod, wanted func(*corev1.Pod) bool) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if err := o.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if pod.Status.Phase == corev1.PodFailed {
			return false, errors.New("the pod has failed")
		}
		return wanted(pod), nil
	})
	if err != nil {
		return fmt.Errorf("wait for pod %s on node %q, phase %s: %w; see `kubectl -n %s get events` and the logs of the driver",
			pod.Name, pod.Spec.NodeName, pod.Status.Phase, err, o.Namespace)
	}
	return nil
}

// cleanUp deletes the pods and the claim, and waits until the PersistentVolume is gone, which is
// when the disk is deleted.
func (o Options) cleanUp(ctx context.Context) error {
	start := o.Clock.Now()
	claim := o.claim()
	if err := o.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return client.IgnoreNotFound(err) // it was not created, and neither were the pods
	}
	for _, object := range []client.Object{o.pod("writer"), o.pod("reader"), o.pod("reader-anywhere"), claim} {
		if err := o.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", object.GetName(), err)
		}
	}
	gone := []client.Object{claim}
	if claim.Spec.VolumeName != "" {
		gone = append(gone, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}})
	}
	for _, object := range gone {
		name := object.GetName()
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			err := o.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
			if pv, is := object.(*corev1.PersistentVolume); is && err == nil &&
				pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
				return false, fmt.Errorf(
					"the StorageClass %s keeps its volumes; delete the PersistentVolume and its disk yourself", o.StorageClass)
			}
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("wait until %s is deleted: %w", name, err)
		}
	}
	o.Say("the volume is deleted after %s", o.since(start))
	return nil
}

func (o Options) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.Namespace,
		Name:      name,
		Labels:    map[string]string{"app.kubernetes.io/name": "azuredisk", "app.kubernetes.io/component": "volume-test"},
	}
}

func (o Options) claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: o.meta(o.Name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: &o.StorageClass,
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: o.Size}},
	}}
}

const user = 65532

func (o Options) pod(role string) *corev1.Pod {
	var pull []corev1.LocalObjectReference
	for _, name := range o.PullSecrets {
		pull = append(pull, corev1.LocalObjectReference{Name: name})
	}
	return &corev1.Pod{ObjectMeta: o.meta(o.Name + "-" + role), Spec: corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false),
		ImagePullSecrets:             pull,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](user),
			RunAsGroup:     ptr.To[int64](user),
			FSGroup:        ptr.To[int64](user),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.Name},
		}}},
	}}
}

func (o Options) container(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name:  name,
		Image: o.Image,
		Args:  append([]string{"volume-test"}, args...),
		VolumeMounts: []corev1.VolumeMount{{
			Name:      "data",
			MountPath: "/data",
		}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("10m"),
				corev1.ResourceMemory: resource.MustParse("32Mi"),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
	}
}

// avoid keeps the pod off a node. A preference would not do: the driver itself prefers the node
// where the disk is attached.
func avoid(pod *corev1.Pod, node string) {
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpNotIn,
				Values:   []string{node},
			}},
		}}},
	}}
}
