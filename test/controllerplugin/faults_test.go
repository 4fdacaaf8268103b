package controllerplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func shortly(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// expectWaiting expects a call that waits in vain for a second to end with the code. On a busy
// machine the second may be over before the call waits. It is repeated then.
func expectWaiting(t *testing.T, p *controlplane.ControlPlane, want codes.Code, call func(context.Context) error) {
	t.Helper()
	eventually(t, p, "a call that waits", func() error {
		err := call(shortly(t, time.Second))
		if status.Code(err) == codes.DeadlineExceeded {
			return err
		}
		expectCode(t, err, want)
		return nil
	})
}

func attachedTo(p *controlplane.ControlPlane, disk string, nodes ...string) func() string {
	return func() string {
		got := p.AttachedTo(disk)
		slices.Sort(got)
		if !slices.Equal(got, nodes) {
			return fmt.Sprintf("attached to %v, want %v", got, nodes)
		}
		return ""
	}
}

func TestLaw3NoReleaseWithoutProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.CreateReplicated("np-a", "np-b")
		expectWaiting(t, p, codes.Aborted, func(ctx context.Context) error { return p.Unpublish(ctx, handle, "np-a") })
		if c := p.Volume("vol").Status.Primary; c.State != apiv1.OwnershipReleasing || c.NodeName != "np-a" {
			t.Fatalf("claim %+v", c)
		}
		expectCode(t, p.Publish(t.Context(), handle, "np-b"), codes.FailedPrecondition)
		if err := p.Stage("vol", "np-a"); err == nil {
			t.Fatal("law 2: a node staged under a claim that is being released")
		}
		// The report comes while the call waits.
		stageAgain := make(chan error, 1)
		p.Report("np-a", func(s *apiv1.AzDriverNodeStatus) {
			s.StagedVolumes = []apiv1.StagedVolume{{VolumeName: p.VolumeName("vol"), Epoch: 1, Phase: apiv1.PhaseUnstaging}}
		})
		go func() { stageAgain <- p.Unpublish(t.Context(), handle, "np-a") }()
		p.Unstage("vol", "np-a")
		must(t, <-stageAgain)
		must(t, p.Publish(t.Context(), handle, "np-b"))
	})
}

func TestLostNodeIsFencedByAzure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{StaleAfter: time.Millisecond})
		for _, n := range []string{"ln-a", "ln-b"} {
			p.AddNode(n, "1", size)
			p.Report(n, func(s *apiv1.AzDriverNodeStatus) { s.HeartbeatPeriodSeconds = 0 })
		}
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "maxShares": "2", "maxMountReplicaCount": "0"})
		p.StageOn(handle, "vol", "ln-a")
		notReady(t, p, "ln-a")
		p.Eventually("released with proof", func() string {
			if err := p.Unpublish(shortly(t, 10*time.Second), handle, "ln-a"); err != nil {
				return err.Error()
			}
			return ""
		})
		if n := p.Cloud.CallCount(fake.AttachmentsForceDetach); n != 1 {
			t.Fatalf("%d forced detaches", n)
		}
		must(t, p.Publish(t.Context(), handle, "ln-b"))
		p.Eventually("moved", attachedTo(p, "vol", "ln-b"))
		// The old node is Ready again with its old epoch, and must not get the volume.
		if err := p.Stage("vol", "ln-a"); err == nil {
			t.Fatal("law 2: the fenced node staged the volume")
		}
	})
}

func TestNodeThatIsGoneLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		for _, n := range []string{"gn-a", "gn-b", "gn-c"} {
			p.AddNode(n, "1", size)
		}
		handle := p.Create("vol", replicated)
		p.StageOn(handle, "vol", "gn-a")
		p.AwaitReplica("vol", "gn-b")
		p.Cloud.RemoveVM(controlplane.VMID("gn-a"))
		must(t, p.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gn-a"}}))
		must(t, p.Unpublish(t.Context(), handle, "gn-a"))
		must(t, p.Publish(t.Context(), handle, "gn-b"))
		must(t, p.Stage("vol", "gn-b"))
		p.AwaitReplica("vol", "gn-c")
		p.Eventually("the AzDriverNode is gone", func() string {
			err := p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "gn-a"}, &apiv1.AzDriverNode{})
			if err == nil {
				return "it is there"
			}
			return ""
		})
	})
}

func TestLaw8ReplicaGivesItsSlotToAPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("gw-a", "1", size)
		p.AddNode("gw-b", "1", "Standard_D2s_v3") // four slots
		first := p.Create("first", replicated)
		p.StageOn(first, "first", "gw-a")
		p.AwaitReplica("first", "gw-b")
		var handles []string
		for i := range 4 {
			name := fmt.Sprintf("other-%d", i)
			handles = append(handles, p.Create(name, map[string]string{"skuName": "Premium_LRS"}))
			p.StageOn(handles[i], name, "gw-b")
		}
		p.Eventually("the replica is gone", attachedTo(p, "first", "gw-a"))
		more := p.Create("more", map[string]string{"skuName": "Premium_LRS"})
		expectCode(t, p.Publish(t.Context(), more, "gw-b"), codes.ResourceExhausted)
		if c := p.Volume("more").Status.Primary; c.State != apiv1.OwnershipReleased {
			t.Fatalf("the refused call left the claim %+v", *c)
		}
		p.Unstage("other-0", "gw-b")
		must(t, p.Unpublish(t.Context(), handles[0], "gw-b"))
		must(t, p.Publish(t.Context(), more, "gw-b"))
		p.Eventually("attached", attachedTo(p, "more", "gw-b"))
	})
}

func TestMoveToANodeWithoutAReplicaTakesAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.CreateReplicated("sh-a", "sh-b")
		p.AddNode("sh-c", "1", size)
		p.Unstage("vol", "sh-a")
		must(t, p.Unpublish(t.Context(), handle, "sh-a"))
		p.StageOn(handle, "vol", "sh-c")
		if got := p.AttachedTo("vol"); len(got) != 2 {
			t.Fatalf("attached to %v", got)
		}
	})
}

func TestReplicasAreCleanedUpAfterTheReleaseAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{CleanUpDelay: 3 * time.Second})
		handle := p.CreateReplicated("gc-a", "gc-b")
		p.Unstage("vol", "gc-a")
		must(t, p.Unpublish(t.Context(), handle, "gc-a"))
		if got := p.Attachments("vol"); len(got) != 2 {
			t.Fatalf("%d attachments right after the release", len(got))
		}
		// The time is in the API and not in the process.
		p.Stop()
		p.Start()
		p.Eventually("cleaned up", attachedTo(p, "vol"))
		released := p.Volume("vol").Status.LastReleasedTime
		if waited := time.Since(released.Time); waited < 3*time.Second {
			t.Fatalf("cleaned up %s after the release", waited)
		}
		p.StageOn(handle, "vol", "gc-b")
	})
}

func TestLaw5RestartWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.CreateReplicated("rs-a", "rs-b")
		versions := func() map[string]string {
			v := map[string]string{"vol": p.Volume("vol").ResourceVersion}
			for _, a := range p.Attachments("vol") {
				v[a.Name] = a.ResourceVersion
			}
			return v
		}
		p.Eventually("settled", func() string {
			v := p.Volume("vol")
			for _, c := range v.Status.Conditions {
				if c.Type == apiv1.VolumeConditionReplicasAttached && c.Status == metav1.ConditionTrue &&
					v.Status.Filesystem != nil {
					return ""
				}
			}
			return fmt.Sprint(v.Status)
		})
		before := versions()
		p.Stop()
		writes := len(p.Cloud.Calls())
		p.Start()
		// Everything has been reconciled once the new process has done something for another volume,
		// and that moved and went.
		other := p.Create("other", replicated)
		p.StageOn(other, "other", "rs-b")
		p.AwaitReplica("other", "rs-a")
		if after := versions(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("written: %v, before %v", after, before)
		}
		for _, c := range p.Cloud.Calls()[writes:] {
			if strings.HasSuffix(c.ID+c.DiskID, "disks/vol") && c.Method != fake.AttachmentsList {
				t.Fatalf("call to Azure: %+v", c)
			}
		}
	})
}

func TestLaw5KilledDuringAnAttachItResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("ka-a", "1", size)
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS"})
		release := p.Cloud.HoldAll(fake.AttachmentsAttach)
		must(t, p.Publish(t.Context(), handle, "ka-a")) // accepted, not attached
		if a := p.Attachment("vol", "ka-a"); a.Status.State != apiv1.AttachmentAttaching || a.Status.Operation == nil ||
			a.Status.Operation.ResumeToken == "" {
			t.Fatalf("%+v", a.Status)
		}
		p.Stop()
		p.Start()
		p.Eventually("resumed", func() string {
			if p.Cloud.CallCount(fake.AttachmentsResume) == 0 {
				return "not resumed"
			}
			return ""
		})
		release()
		p.AwaitStaged("vol", "ka-a")
		if n := p.Cloud.CallCount(fake.AttachmentsAttach); n != 1 {
			t.Fatalf("%d attaches", n)
		}
	})
}

func TestHeldPrimaryOutlivesTheDeletionOfItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("hp-a", "1", size)
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS"})
		p.StageOn(handle, "vol", "hp-a")
		must(t, p.Client.Delete(t.Context(), p.Attachment("vol", "hp-a")))
		p.Eventually("the deletion is held", func() string {
			for _, c := range p.Attachment("vol", "hp-a").Status.Conditions {
				if c.Reason == apiv1.ReasonPrimaryHeld {
					return ""
				}
			}
			return "no condition says so"
		})
		must(t, p.Publish(t.Context(), handle, "hp-a"))
		if got := p.AttachedTo("vol"); len(got) != 1 {
			t.Fatal("law 3: detached under its primary")
		}
		p.Unstage("vol", "hp-a")
		must(t, p.Unpublish(t.Context(), handle, "hp-a"))
		p.Eventually("detached after the release", attachedTo(p, "vol"))
	})
}

// Of two primaries the one whose name comes first has what the other one has been waiting for, and
// the other takes a replica of its own.
func TestPrimariesThatWaitForAFullNodeDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("ww-a", "1", size)
		p.AddNode("ww-b", "1", "Standard_D2s_v3") // four slots
		for i := range 4 {
			name := fmt.Sprintf("resident-%d", i)
			p.StageOn(p.Create(name, replicated), name, "ww-a")
			p.AwaitReplica(name, "ww-b")
		}
		release := p.Cloud.HoldAll(fake.AttachmentsDetach)
		leaving := func(want int) func() string {
			return func() string {
				n := 0
				for i := range 4 {
					if a := p.Attachment(fmt.Sprintf("resident-%d", i), "ww-b"); a == nil || a.DeletionTimestamp != nil {
						n++
					}
				}
				if n != want {
					return fmt.Sprintf("%d replicas give way", n)
				}
				return ""
			}
		}
		published := make(chan error, 2)
		for i, name := range []string{"z-newcomer", "a-newcomer"} {
			handle := p.Create(name, map[string]string{"skuName": "Premium_LRS"})
			go func() { published <- p.Publish(t.Context(), handle, "ww-b") }()
			p.Eventually("a replica gives way to "+name, leaving(i+1))
		}
		release()
		for range 2 {
			must(t, <-published)
		}
		for _, name := range []string{"z-newcomer", "a-newcomer"} {
			p.Eventually("attached", attachedTo(p, name, "ww-b"))
		}
		if complaint := leaving(2)(); complaint != "" {
			t.Error(complaint)
		}
	})
}
