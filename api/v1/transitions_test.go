package v1_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

// An owner is an ownership without its times. The zero value is an AzVolume without an ownership.
type owner struct {
	node  string
	epoch int64
	state apiv1.OwnershipState
	cause apiv1.ReleaseCause
}

func (o owner) String() string {
	if o == (owner{}) {
		return "none"
	}
	return fmt.Sprintf("%s(%s) of epoch %d %s", o.state, o.node, o.epoch, o.cause)
}

func (o owner) ownership() *apiv1.Ownership {
	if o == (owner{}) {
		return nil
	}
	return &apiv1.Ownership{NodeName: o.node, Epoch: o.epoch, State: o.state, Cause: o.cause}
}

func ownerOf(o apiv1.Ownership) owner {
	return owner{node: o.NodeName, epoch: o.Epoch, state: o.State, cause: o.Cause}
}

// unreleased reports whether a node has the ownership, also while it is being released.
func (o owner) unreleased() bool { return o != (owner{}) && o.state != apiv1.OwnershipReleased }

const (
	held, releasing, released = apiv1.OwnershipHeld, apiv1.OwnershipReleasing, apiv1.OwnershipReleased
	unpublished, nodeLost     = apiv1.CauseUnpublished, apiv1.CauseNodeLost
)

// owners are all values of an ownership with two nodes and three epochs, legal or not.
func owners() []owner {
	all := []owner{{}}
	for _, node := range []string{"", "a", "b"} {
		for epoch := range int64(3) {
			for _, state := range []apiv1.OwnershipState{held, releasing, released} {
				for _, cause := range []apiv1.ReleaseCause{"", unpublished, nodeLost} {
					all = append(all, owner{node: node, epoch: epoch, state: state, cause: cause})
				}
			}
		}
	}
	return all
}

// legal reports whether an AzVolume may have an ownership.
func legal(o owner) bool {
	switch o.state {
	case held:
		return o.node != "" && o.epoch > 0 && o.cause == ""
	case releasing:
		return o.node != "" && o.epoch > 0 && o.cause != ""
	case released:
		return o.node == "" && o.cause == ""
	default:
		return o == owner{}
	}
}

// successors are the ownerships that the rules of the hand-over make of one.
func successors(from owner) []owner {
	all, now := []owner{from}, time.Unix(0, 0)
	for _, node := range []string{"a", "b"} {
		for last := range int64(2) { // the epoch of an attachment that outlived its AzVolume
			if o, changed, err := ownership.Acquire(from.ownership(), node, last, now); err == nil && changed {
				all = append(all, ownerOf(o))
			}
		}
		for _, cause := range []apiv1.ReleaseCause{unpublished, nodeLost} {
			if o, _, changed := ownership.StartRelease(from.ownership(), node, cause, now); changed {
				all = append(all, ownerOf(o))
			}
		}
	}
	if from.state == releasing {
		all = append(all, ownerOf(ownership.CompleteRelease(*from.ownership(), now)))
	}
	return all
}

// transitions are the writes of an ownership that the API server accepts, by the ownership that is
// stored. What an AzVolume without an ownership cannot get, no AzVolume can get: the rules about what
// is stored only add refusals.
func transitions(t *testing.T) map[owner][]owner {
	t.Helper()
	config := apiserver.Config(t)
	config.QPS, config.RateLimiter = -1, nil
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	namespace := apiserver.Namespace(t)
	first, err := acceptedFrom(t.Context(), c, newVolume(namespace, "none"), owner{}, owners())
	if err != nil {
		t.Fatal(err)
	}
	found := make([][]owner, len(first))
	calls, ctx := errgroup.WithContext(t.Context())
	calls.SetLimit(4)
	for i, from := range first {
		calls.Go(func() (err error) {
			found[i], err = acceptedFrom(ctx, c, newVolume(namespace, fmt.Sprintf("v%d", i)), from, first)
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		t.Fatal(err)
	}
	accepted := map[owner][]owner{}
	for i, from := range first {
		accepted[from] = found[i]
	}
	return accepted
}

// acceptedFrom stores an ownership in a new AzVolume, and returns which of the others could be written
// after it.
func acceptedFrom(ctx context.Context, c client.Client, v *apiv1.AzVolume, from owner, others []owner) ([]owner, error) {
	if err := c.Create(ctx, v); err != nil {
		return nil, err
	}
	v.Status.Primary = from.ownership()
	if err := c.Status().Update(ctx, v); err != nil {
		return nil, err
	}
	var accepted []owner
	for _, to := range others {
		changed := v.DeepCopy()
		changed.Status.Primary = to.ownership()
		switch err := c.Status().Update(ctx, changed, client.DryRunAll); {
		case err == nil:
			accepted = append(accepted, to)
		case !apierrors.IsInvalid(err):
			return nil, fmt.Errorf("%s to %s: %w", from, to, err)
		}
	}
	return accepted, nil
}

// All writes of an ownership are tried, also such as the driver does not make: an administrator, a
// restore tool or a bug may.
func TestTheServerAcceptsTheTransitionsOfTheHandOverAndNoOthers(t *testing.T) {
	t.Parallel()
	all, accepted := owners(), transitions(t)
	for _, from := range all {
		to, stored := accepted[from]
		if stored != legal(from) {
			t.Errorf("%s: stored %v, want %v", from, stored, legal(from))
		}
		next := successors(from)
		for _, o := range all {
			want := slices.Contains(next, o) || from == owner{} && legal(o)
			if got := slices.Contains(to, o); stored && got != want {
				t.Errorf("%s to %s: accepted %v, want %v", from, o, got, want)
			}
		}
	}
	for from := range accepted {
		checkChains(t, accepted, from)
	}
}

// checkChains follows all chains of accepted writes from an ownership up to its release. Law 1 is
// about what happens between two releases, in however many writes.
func checkChains(t *testing.T, accepted map[owner][]owner, from owner) {
	t.Helper()
	seen, queue := map[owner]bool{from: true}, []owner{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, to := range accepted[at] {
			if broken := brokenBy(from, at, to); broken != "" {
				t.Errorf("from %s by %s to %s: %s", from, at, to, broken)
				return
			}
			if to.unreleased() && !seen[to] {
				seen[to], queue = true, append(queue, to)
			}
		}
	}
}

// brokenBy returns what a chain of writes that leads from one ownership to another has broken by its
// last step; "" for nothing. The first ownership was not released in between.
func brokenBy(from, at, to owner) string {
	switch {
	case to.epoch < at.epoch, at != owner{} && to == owner{}:
		return "the epoch is lower or lost"
	case !from.unreleased() || !to.unreleased():
		return ""
	case to.node != from.node:
		return "another node has the ownership, and it was not Released"
	case from.cause == nodeLost && to.state == held:
		return "a lost node has the ownership again, and it was not Released"
	case to.state == held && to != from && to.epoch <= from.epoch:
		return "the node acquired it again under an earlier epoch"
	}
	return ""
}

// The proof of the type Preempted keeps an attachment from being used again while the disk may still
// be attached to the node that was fenced.
func TestAPreemptedProofIsReplacedByAzuresOnly(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	a := newAttachment(namespace, "vol", "node")
	a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, 4
	if err := c.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	preempted := &apiv1.ReleaseProof{
		Type: apiv1.ProofPreempted, Epoch: 4, ProvenTime: metav1.Unix(1, 0), Message: "taken",
		Preemption: &apiv1.Preemption{NodeName: "helper", Key: "0x1"},
	}
	a.Status = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentDetaching, VMID: "/vm", UID: a.UID, Proof: preempted}
	if err := c.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	const words = "replaced by Detached or VMDown only"
	proved := func(kind apiv1.ProofType, epoch int64) func(*apiv1.AzVolumeAttachmentStatus) {
		return func(s *apiv1.AzVolumeAttachmentStatus) {
			s.Proof = &apiv1.ReleaseProof{Type: kind, Epoch: epoch, ProvenTime: metav1.Unix(2, 0)}
		}
	}
	for name, test := range map[string]struct {
		change func(*apiv1.AzVolumeAttachmentStatus)
		words  string
	}{
		"removed":             {func(s *apiv1.AzVolumeAttachmentStatus) { s.Proof = nil }, words},
		"unstaged":            {proved(apiv1.ProofUnstaged, 4), words},
		"of an earlier epoch": {proved(apiv1.ProofDetached, 3), words},
		"by another node":     {func(s *apiv1.AzVolumeAttachmentStatus) { s.Proof.Preemption.NodeName = "other" }, words},
		"removed with the VM": {func(s *apiv1.AzVolumeAttachmentStatus) { s.Proof, s.VMID = nil, "" }, words},
		"detached":            {proved(apiv1.ProofDetached, 4), ""},
		"VM down":             {proved(apiv1.ProofVMDown, 4), ""},
		"the state":           {func(s *apiv1.AzVolumeAttachmentStatus) { s.State = apiv1.AttachmentDetachFail }, ""},
		"discarded as a copy of another object's": {func(s *apiv1.AzVolumeAttachmentStatus) {
			*s = apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentPending}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			changed := a.DeepCopy()
			test.change(&changed.Status)
			err := c.Status().Update(t.Context(), changed, client.DryRunAll)
			if test.words != "" {
				refused(t, err, test.words)
			} else if err != nil {
				t.Errorf("got %v, want no error", err)
			}
		})
	}
}
