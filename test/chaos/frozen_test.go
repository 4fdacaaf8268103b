package chaos

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/test/stack"
)

// A machine that has no time for the leading controller costs it its lease. It must not go on as if
// nothing had been: it ends, its kubelet starts it again, and volumes work meanwhile and
// afterwards.
func TestALeaderThatWasFrozenIsReplacedAndStartsAgain(t *testing.T) {
	s := stack.Start(t, stack.Options{Nodes: 1, Controllers: 2})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: s.Namespace, Name: "azuredisk-controller"}
	holder := func() string {
		if err := s.Kube.Get(ctx, key, lease); err != nil || lease.Spec.HolderIdentity == nil {
			t.Fatalf("read the lease: %v, %v", err, lease.Spec.HolderIdentity)
		}
		return *lease.Spec.HolderIdentity
	}
	leader, err := s.AwaitLeader(ctx)
	expect.Must(t, err)
	before := holder()
	thaw, err := leader.Freeze()
	expect.Must(t, err)
	defer thaw()
	for holder() == before {
		select {
		case <-ctx.Done():
			t.Fatal("no replica has acquired the lease of a frozen leader")
		case <-time.After(50 * time.Millisecond):
		}
	}
	thaw()
	expect.Must(t, leader.AwaitStarts(ctx, 2))
	volume, err := s.CreateVolume(ctx, "pvc-frozen", gib, map[string]string{"skuName": "Premium_LRS"})
	expect.Must(t, err)
	if _, err := s.Use(ctx, volume, s.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	expect.Must(t, s.Release(ctx, volume, s.Nodes[0]))
	expect.Must(t, s.DeleteVolume(ctx, volume.VolumeId))
	s.AssertNothingLeft(t)
}
