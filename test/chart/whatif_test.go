package chart_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/whatif"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	testobjects "github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

const (
	placements = 20
	labelRound = "test/round"
)

// round is a pod with its own nodes. It is on the first of them.
type round struct {
	name    string
	pod     *corev1.Pod
	objects []client.Object
	// tainted are nodes that the pod does not tolerate.
	tainted []*corev1.Node
	// warm are the nodes at which every disk of the pod is attached.
	warm map[string]bool
}

func (r round) node(i int) string { return fmt.Sprintf("%s-%d", r.name, i) }

// randomRound makes a round of six nodes. The pod cannot use some of them, and some have its disks.
func randomRound(random *rand.Rand, namespace string, i int) round {
	r := round{name: fmt.Sprintf("round-%02d", i), warm: map[string]bool{}}
	one := func(of int) bool { return random.IntN(of) == 0 }
	attached := map[string]int{}
	for n := range 6 {
		name := r.node(n)
		node := clusterNode(name)
		node.Labels[labelRound] = r.name
		node.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("eastus-%d", 1+random.IntN(2))
		if n > 0 && one(6) {
			r.tainted = append(r.tainted, node)
		}
		if n > 0 && one(8) {
			node.Spec.Unschedulable = true
		}
		if n > 0 && one(8) {
			node.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("8Gi"),
				corev1.ResourcePods: resource.MustParse("110"),
			}
		}
		r.objects = append(r.objects, node)
		switch {
		case n > 0 && one(8): // has no node plug-in
		case n > 0 && one(8):
			r.objects = append(r.objects, lost(driverNode(namespace, name)))
		case n > 0 && one(8):
			r.objects = append(r.objects, full(driverNode(namespace, name)))
		default:
			r.objects = append(r.objects, driverNode(namespace, name))
		}
	}
	claims := []string{}
	for v := range 1 + random.IntN(2) {
		claim, pv := boundClaim(namespace, fmt.Sprintf("%s-disk-%d", r.name, v))
		claims = append(claims, claim.Name)
		if one(2) {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn,
					Values: []string{r.objects[0].GetLabels()[corev1.LabelTopologyZone]},
				}}}},
			}}
		}
		volume := testobjects.NewVolume(testobjects.Owned(r.node(0), 1, apiv1.OwnershipHeld), func(az *apiv1.AzVolume) {
			az.Namespace, az.Spec.Disk.Name = namespace, claim.Name
			az.Name = apiv1.VolumeName(az.Spec.Disk.SubscriptionID, "g", claim.Name)
			az.Status.Fencing = apiv1.FencingPreemption
			az.Finalizers = nil
		})
		primary := attachment(namespace, claim.Name, r.node(0))
		primary.Spec.Role, primary.Spec.Epoch, primary.Status.Role = apiv1.RolePrimary, 1, apiv1.RolePrimary
		r.objects = append(r.objects, pv, claim, volume, primary)
		for n := 1; n < 6; n++ {
			if one(2) {
				continue
			}
			replica := attachment(namespace, claim.Name, r.node(n))
			if one(4) {
				replica.Status.State = apiv1.AttachmentAttaching
			} else {
				attached[r.node(n)]++
			}
			r.objects = append(r.objects, replica)
		}
	}
	for node, n := range attached {
		r.warm[node] = n == len(claims)
	}
	r.pod = podWith(namespace, r.name, claims...)
	r.pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: r.name, UID: "set", Controller: ptr.To(true),
	}}
	r.pod.Spec.NodeSelector = map[string]string{labelRound: r.name}
	r.pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
	return r
}

// What `what-if` says of the loss of a node is what then happens: it reads the API server before the
// loss, and a real kube-scheduler of the chart with the extender places the pods after it.
func TestWhatIfAgreesWithARealKubeScheduler(t *testing.T) {
	kube, namespace := apiserver.Client(t), apiserver.Namespace(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var rounds []round
	for i := range placements {
		r := randomRound(random, namespace, i)
		createWithStatus(t, kube, r.objects...)
		for _, node := range r.tainted {
			patch := client.MergeFrom(node.DeepCopy())
			node.Spec.Taints = []corev1.Taint{{Key: "test/reserved", Effect: corev1.TaintEffectNoSchedule}}
			must(t, kube.Patch(t.Context(), node, patch))
		}
		there := r.pod.DeepCopy()
		there.Spec.NodeName = r.node(0)
		createWithStatus(t, kube, there)
		rounds = append(rounds, r)
	}
	reader, now, err := collect.NewReader(apiserver.Config(t), clock.RealClock{})
	must(t, err)
	answers := map[string]whatif.Row{}
	for _, r := range rounds {
		facts, err := collect.WhatIf(t.Context(), reader, collect.WhatIfOptions{
			Subject:    explain.Subject{Kind: explain.KindNode, Name: r.node(0)},
			DriverName: config.DriverName, DriverNamespace: namespace, Now: now.Now,
		})
		must(t, err)
		facts.Unsteered = false // the extender is not a Deployment here
		report := whatif.Answer(facts)
		if len(report.Pods) != 1 || report.Pods[0].Pod != r.name {
			t.Fatalf("%s: got %+v, want one row for the pod", r.name, report)
		}
		answers[r.name] = report.Pods[0]
	}
	for _, r := range rounds {
		var d apiv1.AzDriverNode
		must(t, kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: r.node(0)}, &d))
		judgement := nodehealth.Judgement{State: nodehealth.Lost, Evidence: "test"}
		meta.SetStatusCondition(&d.Status.Conditions, nodehealth.Condition(judgement))
		must(t, kube.Status().Update(t.Context(), &d))
		must(t, kube.Delete(t.Context(), r.pod.DeepCopy(), client.GracePeriodSeconds(0)))
	}
	startKubeScheduler(t, startExtender(t, namespace))
	for _, r := range rounds {
		createWithStatus(t, kube, r.pod.DeepCopy())
	}
	results := map[string]int{}
	for _, r := range rounds {
		pod, row := &corev1.Pod{}, answers[r.name]
		eventually(t, r.name+" is judged", func() error {
			must(t, kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: r.name}, pod))
			if pod.Spec.NodeName != "" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
			}) {
				return nil
			}
			return fmt.Errorf("pod %s is not judged: %v", r.name, pod.Status.Conditions)
		})
		results[row.Result]++
		got := pod.Spec.NodeName
		switch {
		case row.Result == whatif.Stuck && got != "":
			t.Errorf("%s: got node %s, want no node, as the answer said: %s", r.name, got, row.Why)
		case row.Result == whatif.Stuck:
		case got != row.To && !slices.Contains(row.Or, got):
			t.Errorf("%s: got node %q (%v), want %s or one of %v", r.name, got, pod.Status.Conditions, row.To, row.Or)
		case r.warm[got] != (row.Result == whatif.Warm):
			t.Errorf("%s: got node %s with all disks attached: %t, want what the answer said: %s", r.name, got, r.warm[got], row.Result)
		}
	}
	t.Logf("results: %v", results)
}
