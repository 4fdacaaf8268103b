package scenario

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

const (
	// diskSize is the smallest that mkfs makes quickly and that Azure lets be shared.
	diskSize = "8Gi"
	// StartTimeout covers a disk's creation and a slow attach.
	StartTimeout = 4 * time.Minute
)

// Workload is a StatefulSet of one pod that writes records, to a volume of its own unless it is
// Stateless.
type Workload struct {
	// Name is that of the StatefulSet and of the workload at the Collector.
	Name string
	// MaxShares and Replicas are the StorageClass parameters maxShares and
	// maxMountReplicaCount.
	MaxShares, Replicas int
	// NoReservations switches the disk's persistent reservations off, so that only Azure can prove
	// that a lost node does not write.
	NoReservations bool
	// Zone keeps the pod in one zone; empty for any.
	Zone string
	// KeepTrying makes the pod continue when its disk fails, instead of ending.
	KeepTrying bool
	// Unsynced makes the pod acknowledge what it has written and not synced.
	Unsynced bool
	// ZRS gives the disk copies in all zones, so that the pod may run in any of them.
	ZRS bool
	// Stateless gives the pod a folder of its node in the place of a disk: what it wrote is gone when
	// it moves.
	Stateless bool
	// Postgres runs PostgreSQL in place of the recorder. It has no records: clients commit to it.
	Postgres bool
	// NotOn is a node on which the pod must not run; empty for none.
	NotOn string
	// MoreClaims is how many more claims the pod has, which it does not write to.
	MoreClaims int
	// Interval is the time from one record to the next; the recorder's own if it is zero.
	Interval time.Duration
}

// Pod is the name of the workload's pod.
func (w Workload) Pod() string { return w.Name + "-0" }

// Claim is the name of its PersistentVolumeClaim.
func (w Workload) Claim() string { return "data-" + w.Pod() }

// Claims are the names of all of its PersistentVolumeClaims.
func (w Workload) Claims() []string {
	claims := []string{w.Claim()}
	for i := range w.MoreClaims {
		claims = append(claims, fmt.Sprintf("more-%d-%s", i+1, w.Pod()))
	}
	return claims
}

// storageClass is made once and shared by all runs: its name says all that is in it.
func (w Workload) storageClass(scenario, driver string) *storagev1.StorageClass {
	reservations := "auto"
	if w.NoReservations {
		reservations = "disabled"
	}
	sku := "Premium_LRS"
	if w.ZRS {
		sku = "Premium_ZRS"
	}
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("scenario-%s-shares-%d-replicas-%d-reservations-%s-%s",
				strings.ToLower(strings.TrimPrefix(sku, "Premium_")), w.MaxShares, w.Replicas, reservations, driver),
			Labels: map[string]string{scenarioLabel: scenario},
		},
		Provisioner: driver,
		Parameters: map[string]string{
			"skuName": sku, "cachingMode": "None",
			"maxShares": fmt.Sprint(w.MaxShares), "maxMountReplicaCount": fmt.Sprint(w.Replicas),
			"persistentReservations": reservations,
		},
		AllowVolumeExpansion: ptr.To(true),
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
	}
}

func (w Workload) statefulSet(e *Environment, class string) *appsv1.StatefulSet {
	labels := map[string]string{observer.AppLabel: w.Name}
	meta := metav1.ObjectMeta{Name: w.Name, Labels: maps.Clone(labels)}
	meta.Labels[scenarioLabel] = e.Report.Scenario
	container := corev1.Container{
		Name:            "recorder",
		Image:           e.RecorderRef,
		ImagePullPolicy: corev1.PullNever,
		Args:            []string{"write", "--dir=/data", "--collector=" + e.collectorURL + "/" + w.Name},
		VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		Env: []corev1.EnvVar{{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
		}}},
	}
	if w.Interval > 0 {
		container.Args = append(container.Args, "--interval="+w.Interval.String())
	}
	if w.KeepTrying {
		container.Args = append(container.Args, "--keep-trying")
	}
	if w.Unsynced {
		container.Args = append(container.Args, "--unsynced")
	}
	var nodes map[string]string
	if w.Zone != "" {
		nodes = map[string]string{corev1.LabelTopologyZone: w.Zone}
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: meta,
		Spec: appsv1.StatefulSetSpec{
			ServiceName: w.Name,
			Replicas:    ptr.To[int32](1),
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					NodeSelector:                  nodes,
					Containers:                    []corev1.Container{container},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					StorageClassName: &class,
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(diskSize)},
					},
				},
			}},
		},
	}
	for i := range w.MoreClaims {
		more := set.Spec.VolumeClaimTemplates[0].DeepCopy()
		more.Name = fmt.Sprintf("more-%d", i+1)
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, *more)
		c := &set.Spec.Template.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: more.Name, MountPath: "/" + more.Name})
	}
	if w.Postgres {
		runPostgres(&set.Spec.Template.Spec)
	}
	if w.NotOn != "" {
		set.Spec.Template.Spec.Affinity = notOn(w.NotOn)
	}
	if w.Stateless {
		set.Spec.VolumeClaimTemplates = nil
		set.Spec.Template.Spec.Volumes = []corev1.Volume{{
			Name:         "data",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}}
	}
	return set
}

func notOn(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpNotIn,
				Values:   []string{node},
			}}}},
		},
	}}
}

// create makes the workload and does not wait.
func (e *Environment) create(ctx context.Context, w Workload) error {
	name := ""
	if !w.Stateless {
		class := w.storageClass(e.Report.Scenario, e.driver)
		if _, err := e.Kube.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make storage class %s: %w", class.Name, err)
		}
		name = class.Name
	}
	set := w.statefulSet(e, name)
	if _, err := e.Kube.AppsV1().StatefulSets(e.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make stateful set %s: %w", w.Name, err)
	}
	return nil
}

// AwaitWriting blocks until the workload's pod runs and writes.
func (e *Environment) AwaitWriting(ctx context.Context, w Workload) error {
	err := e.View.Await(ctx, StartTimeout, w.Pod()+" runs", func() bool {
		pod := e.View.Pod(w.Pod())
		return pod != nil && observer.IsRunning(pod)
	})
	if err != nil {
		return err
	}
	_, err = e.AwaitWriter(ctx, w, string(e.View.Pod(w.Pod()).UID))
	return err
}

// AwaitReady blocks until the workload's pod runs and writes, and its volume has all
// its replicas attached.
func (e *Environment) AwaitReady(ctx context.Context, w Workload) (observer.Volume, error) {
	err := e.View.Await(ctx, StartTimeout, w.Pod()+" runs", func() bool {
		pod := e.View.Pod(w.Pod())
		return pod != nil && observer.IsRunning(pod) && e.View.VolumeOfClaim(w.Claim()) != nil
	})
	if err != nil {
		return observer.Volume{}, err
	}
	pod := e.View.Pod(w.Pod())
	v := observer.NewVolume(e.View.VolumeOfClaim(w.Claim()))
	e.Progress("%s runs on %s with disk %s", w.Pod(), pod.Spec.NodeName, v.Name)
	if !w.Postgres {
		if _, err := e.AwaitWriter(ctx, w, string(pod.UID)); err != nil {
			return observer.Volume{}, err
		}
	}
	if err := e.AwaitReplicas(ctx, w, v); err != nil {
		return observer.Volume{}, err
	}
	return v, nil
}

// AwaitReplicas blocks until the volume has its primary and all its replicas
// attached, and nothing else.
func (e *Environment) AwaitReplicas(ctx context.Context, w Workload, v observer.Volume) error {
	what := fmt.Sprintf("the disk of %s is attached to its node and to %d more", w.Pod(), w.Replicas)
	return e.View.Await(ctx, StartTimeout, what, func() bool {
		attachments := e.View.Attachments(v.Name)
		if len(attachments) != w.Replicas+1 {
			return false
		}
		for _, a := range attachments {
			if a.State != "Attached" || a.Deleting {
				return false
			}
		}
		return true
	})
}
