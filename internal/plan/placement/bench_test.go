package placement_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// BenchmarkPlacement places one replica in a cluster of 1,000 nodes and 20,000 pods; every tenth pod keeps others away.
func BenchmarkPlacement(b *testing.B) {
	in := placement.Input{
		Now: objects.Now, CleanUpDelay: time.Minute, DrainGrace: time.Minute, Volume: objects.NewVolume(objects.Owned("n-0", 2, apiv1.OwnershipHeld)),
		Attachments: objects.Attachments(objects.NewAttachment("n-0", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)),
	}
	for i := range 1000 {
		n := newNode(fmt.Sprintf("n-%d", i), "1")
		n.Node.Labels[corev1.LabelTopologyZone] = fmt.Sprint(i % 3)
		in.Nodes, in.Cluster.Nodes = append(in.Nodes, n), append(in.Cluster.Nodes, n.Node)
	}
	for i := range 20000 {
		p := newPod(fmt.Sprintf("p-%d", i), fmt.Sprintf("n-%d", i%1000), called(fmt.Sprintf("app-%d", i%50)))
		if i%10 == 0 {
			farFrom(term(fmt.Sprintf("app-%d", i%50), corev1.LabelHostname))(p)
		}
		in.Cluster.Pods = append(in.Cluster.Pods, p)
	}
	spread := corev1.TopologySpreadConstraint{MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: app("app-1")}
	user := newPod("db", "n-0", called("app-7"), nearTo(term("app-1", corev1.LabelTopologyZone)), farFrom(term("app-7", corev1.LabelHostname)), evenly(spread))
	in.Pods = []placement.PodView{{Pod: user}}
	b.ReportAllocs()
	for b.Loop() {
		if decisions := placement.Next(in).Decisions; len(decisions) != 1 {
			b.Fatal(decided(decisions))
		}
	}
}
