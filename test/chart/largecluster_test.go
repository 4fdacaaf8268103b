package chart_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	testobjects "github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// In a cluster of 100 nodes or more, kube-scheduler rates a part of the nodes that a pod can use,
// unless its configuration says otherwise: here 100 of 160.
func TestAReplicaIsFoundInALargeCluster(t *testing.T) {
	const nodes, pods = 160, 12
	kube, namespace := apiserver.Client(t), apiserver.Namespace(t)
	name := func(i int) string { return fmt.Sprintf("%s-%03d", namespace, i) }
	for i := range nodes {
		createWithStatus(t, kube, clusterNode(name(i)), driverNode(namespace, name(i)))
	}
	var waiting []*corev1.Pod
	for i := range pods {
		claim, pv := boundClaim(namespace, fmt.Sprintf("disk-%d", i))
		volume := testobjects.NewVolume(testobjects.Owned("", 1, apiv1.OwnershipReleased), func(az *apiv1.AzVolume) {
			az.Namespace, az.Spec.Disk.Name = namespace, claim.Name
			az.Name = apiv1.VolumeName(az.Spec.Disk.SubscriptionID, "g", claim.Name)
			az.Finalizers = nil
		})
		createWithStatus(t, kube, pv, claim, volume, attachment(namespace, claim.Name, name(i*nodes/pods)))
		waiting = append(waiting, podWith(namespace, fmt.Sprintf("pod-%d", i), claim.Name))
	}
	startKubeScheduler(t, startExtender(t, namespace))
	for i, pod := range waiting {
		createWithStatus(t, kube, pod)
		eventually(t, pod.Name+" is scheduled", func() error {
			must(t, kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			if pod.Spec.NodeName == "" {
				return fmt.Errorf("pod %s has no node: %v", pod.Name, pod.Status.Conditions)
			}
			return nil
		})
		if want := name(i * nodes / pods); pod.Spec.NodeName != want {
			t.Errorf("%s: got node %s, want %s, which has the replica", pod.Name, pod.Spec.NodeName, want)
		}
	}
}
