package observer

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// The labels of the driver's pods.
const (
	DriverSelector   = "app.kubernetes.io/part-of=azuredisk"
	ComponentLabel   = "app.kubernetes.io/component"
	ControllerPlugin = "controller"
	NodePlugin       = "node"
	Scheduler        = "scheduler"
)

// Controllers are the pods of the driver's controllers that are not about to end, by name.
func (v *View) Controllers() []*corev1.Pod { return v.Component(ControllerPlugin) }

// Component are the pods of a component of the driver that are not about to end, by name.
func (v *View) Component(name string) []*corev1.Pod {
	// A lister's List never fails: it reads memory.
	pods, _ := v.ofDriver.Core().V1().Pods().Lister().List(labels.SelectorFromSet(labels.Set{ComponentLabel: name}))
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// DriverPod is a pod of the driver, nil if there is none of that name.
func (v *View) DriverPod(name string) *corev1.Pod {
	pod, err := v.ofDriver.Core().V1().Pods().Lister().Pods(DriverNamespace).Get(name)
	if err != nil {
		return nil
	}
	return pod
}

// LeaseHolder is the driver's pod that has the lease, and when it took it.
func (v *View) LeaseHolder(lease string) (pod string, acquired time.Time) {
	found, err := v.ofDriver.Coordination().V1().Leases().Lister().Leases(DriverNamespace).Get(lease)
	if err != nil || found.Spec.AcquireTime == nil {
		return "", time.Time{}
	}
	// controller-runtime appends an underscore and a UUID to the host's name.
	pod, _, _ = strings.Cut(ptr.Deref(found.Spec.HolderIdentity, ""), "_")
	return pod, found.Spec.AcquireTime.Time
}
