package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	hostname = "kubernetes.io/hostname"
	// dataDir is where a pod has its volumes, devices below /dev.
	dataDir = "/volumes"
)

func labels() map[string]string { return map[string]string{testLabel: "true"} }

// class makes a StorageClass of the driver: delayed, Delete, Premium_LRS, unless changed.
func (t *bench) class(ctx context.Context, name string, change ...func(*storagev1.StorageClass)) (string, error) {
	class := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: t.namespace + "-" + name, Labels: labels()},
		Provisioner:          driverName,
		Parameters:           map[string]string{"skuName": "Premium_LRS"},
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
	}
	for _, c := range change {
		c(class)
	}
	if _, err := t.kube.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("make StorageClass: %w", err)
	}
	t.later("delete the StorageClass", func(ctx context.Context) error {
		return t.kube.StorageV1().StorageClasses().Delete(ctx, class.Name, metav1.DeleteOptions{})
	})
	return class.Name, nil
}

func immediate(c *storagev1.StorageClass) {
	c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
}

func retain(c *storagev1.StorageClass) {
	c.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
}

func parameters(pairs ...string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		for i := 0; i < len(pairs); i += 2 {
			c.Parameters[pairs[i]] = pairs[i+1]
		}
	}
}

// claim makes a claim of the class: ReadWriteOnce, with a filesystem, unless changed.
func (t *bench) claim(ctx context.Context, name, class, size string, change ...func(*corev1.PersistentVolumeClaim)) error {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: t.namespace,
			Labels:    labels(),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
	for _, c := range change {
		c(claim)
	}
	if _, err := t.kube.CoreV1().PersistentVolumeClaims(t.namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make claim %s: %w", name, err)
	}
	return nil
}

func block(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

func accessMode(mode corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode} }
}

func (t *bench) getClaim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	return t.kube.CoreV1().PersistentVolumeClaims(t.namespace).Get(ctx, name, metav1.GetOptions{})
}

// awaitBound waits until the claim is bound and returns it with its volume.
func (t *bench) awaitBound(ctx context.Context, name string) (claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume,
	err error) {
	err = await(ctx, "claim "+name+" is bound", func(ctx context.Context) error {
		var err error
		if claim, err = t.getClaim(ctx, name); err != nil {
			return err
		}
		if claim.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", claim.Status.Phase)
		}
		pv, err = t.kube.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		return err
	})
	return claim, pv, err
}

func (t *bench) deleteClaim(ctx context.Context, name string) error {
	return t.kube.CoreV1().PersistentVolumeClaims(t.namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// podSpec changes a pod before it is made.
type podSpec func(*corev1.Pod)

// on has the scheduler put the pod on a node.
func on(node string) podSpec {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = nil
		p.Spec.NodeSelector = map[string]string{hostname: node}
	}
}

// inZone has the scheduler put the pod into a zone, a number.
func inZone(label string) podSpec {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: label} }
}

// ending makes a pod that ends by itself.
func ending(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"show", "/"} }

// pod makes a pod that holds the claims: below /volumes, or raw ones below /dev.
func (t *bench) pod(ctx context.Context, name string, claims []string, change ...podSpec) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: t.namespace,
			Labels:    labels(),
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](2),
			Affinity:                      t.apart(),
			Containers: []corev1.Container{{
				Name:            "probe",
				Image:           t.image,
				ImagePullPolicy: corev1.PullNever,
				Args:            []string{"hold"},
			}},
		},
	}
	if t.node != "" {
		on(t.node)(pod)
	}
	container := &pod.Spec.Containers[0]
	for _, name := range claims {
		claim, err := t.getClaim(ctx, name)
		if err != nil {
			return err
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
		if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
			container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{
				Name:       name,
				DevicePath: devicePath(name),
			})
		} else {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
				Name:      name,
				MountPath: path.Join(dataDir, name),
			})
		}
	}
	for _, c := range change {
		c(pod)
	}
	if _, err := t.kube.CoreV1().Pods(t.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make pod %s: %w", name, err)
	}
	return nil
}

func devicePath(claim string) string { return "/dev/" + claim }

func filePath(claim, name string) string { return path.Join(dataDir, claim, name) }

// apart keeps pods off the node on which the disturbing tests are.
func (t *bench) apart() *corev1.Affinity {
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: hostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{t.disturbed}},
			}}},
		}},
	}
}

// awaitRunning waits until the pod's container runs.
func (t *bench) awaitRunning(ctx context.Context, name string) (*corev1.Pod, error) {
	return t.awaitPod(ctx, name, "runs", func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
}

func (t *bench) awaitPod(ctx context.Context, name, what string, reached func(*corev1.Pod) error) (*corev1.Pod, error) {
	var pod *corev1.Pod
	return pod, await(ctx, "pod "+name+" "+what, func(ctx context.Context) error {
		var err error
		if pod, err = t.kube.CoreV1().Pods(t.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return reached(pod)
	})
}

// run makes a pod with the claims and waits until it runs.
func (t *bench) run(ctx context.Context, name string, claims []string, change ...podSpec) (*corev1.Pod, error) {
	if err := t.pod(ctx, name, claims, change...); err != nil {
		return nil, err
	}
	return t.awaitRunning(ctx, name)
}

// data makes a class and the claim data of it.
func (t *bench) data(ctx context.Context, size string, change ...func(*storagev1.StorageClass)) error {
	class, err := t.class(ctx, "data", change...)
	if err != nil {
		return err
	}
	return t.claim(ctx, "data", class, size)
}

// bound is data for an immediate class, and returns the volume to which the claim is bound.
func (t *bench) bound(ctx context.Context, size string, change ...func(*storagev1.StorageClass)) (*corev1.PersistentVolume,
	error) {
	if err := t.data(ctx, size, append(change, immediate)...); err != nil {
		return nil, err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	return pv, err
}

// volume makes a class, the claim data and a pod that runs with it, and returns pod and volume.
func (t *bench) volume(ctx context.Context, size string, change ...func(*storagev1.StorageClass)) (*corev1.Pod,
	*corev1.PersistentVolume, error) {
	if err := t.data(ctx, size, change...); err != nil {
		return nil, nil, err
	}
	pod, err := t.run(ctx, "user", []string{"data"})
	if err != nil {
		return nil, nil, err
	}
	_, pv, err := t.awaitBound(ctx, "data")
	return pod, pv, err
}

func (t *bench) deletePod(ctx context.Context, name string) error {
	return t.kube.CoreV1().Pods(t.namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (t *bench) awaitPodGone(ctx context.Context, name string) error {
	return await(ctx, "pod "+name+" is gone", func(ctx context.Context) error {
		_, err := t.kube.CoreV1().Pods(t.namespace).Get(ctx, name, metav1.GetOptions{})
		return gone(err)
	})
}

// gone turns the answer to a question for an object into what await wants.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it is there")
	}
	return err
}

// check returns an error unless it held.
func check(held bool, format string, args ...any) error {
	if held {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func mountOptions(options ...string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.MountOptions = options }
}
