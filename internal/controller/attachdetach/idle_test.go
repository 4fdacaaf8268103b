package attachdetach

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// The node goes on to report the volume, because its kubelet has forgotten it.
func TestAVolumeThatNoPodUsesIsUnpublishedAfterAWhile(t *testing.T) {
	objects := append(volume("vol", apiv1.AccessSingleNode, "a"), readyNode("a"), report("a", "vol"))
	r, calls := setUp(t, driver, objects...)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	r.Clock = clock
	reconcileOf(t, r, "vol")
	clock.SetTime(clock.Now().Add(idleAfter - time.Second))
	reconcileOf(t, r, "vol")
	calls.expect(t)
	clock.SetTime(clock.Now().Add(time.Second))
	reconcileOf(t, r, "vol")
	calls.expect(t, "unpublish "+disk("rg", "vol")+" from a")
}
