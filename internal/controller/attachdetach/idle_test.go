package attachdetach

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// The node goes on to report the volume, because its kubelet has forgotten it.
func TestAVolumeThatNoPodUsesIsUnpublishedAfterAWhile(t *testing.T) {
	objects := append(volume("vol", apiv1.AccessSingleNode, "a"), readyNode("a"), report("a", "vol"))
	r, calls := setUp(t, driver, objects...)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	r.Clock = clock
	user := pod("apps", "p", "a", inline(disk("rg", "vol")))
	expect.Must(t, r.Client.Create(t.Context(), user))
	reconcileOf(t, r, "vol")
	clock.SetTime(clock.Now().Add(idleAfter))
	expect.Must(t, r.Client.Delete(t.Context(), user))
	reconcileOf(t, r, "vol")
	clock.SetTime(clock.Now().Add(idleAfter - time.Second))
	reconcileOf(t, r, "vol")
	calls.expect(t)
	clock.SetTime(clock.Now().Add(time.Second))
	reconcileOf(t, r, "vol")
	calls.expect(t, "unpublish "+disk("rg", "vol")+" from a")
	expect.Must(t, r.Client.Delete(t.Context(), objects[0]))
	reconcileOf(t, r, "vol")
	if len(r.idle.volumes) != 0 {
		t.Errorf("got %v remembered of a volume that is gone, want nothing", r.idle.volumes)
	}
}
