package node_test

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// A volume that several nodes use at the same time has no primary; its attachments are created and
// deleted under one epoch. No disk may be detached from a node that uses it.

func multiNode() protocol {
	return protocol{
		stageSteps, publishMultiNode, unpublishMultiNode,
		func(w *world) bool {
			for name, mounted := range w.mounted {
				if mounted && w.attachment(name) == nil {
					return true
				}
			}
			return false
		},
		func() *world {
			w := newWorld()
			w.multiNode, w.attachments = true, map[string]apiv1.AzVolumeAttachment{}
			return w
		},
	}
}

func publishMultiNode(name string) step {
	return func(w *world) step {
		a := w.attachment(name)
		switch {
		case a == nil:
			return func(w *world) step {
				if w.attachment(name) != nil {
					return nil // AlreadyExists; the caller tries again
				}
				w.moves++
				w.attachments[name] = apiv1.AzVolumeAttachment{
					ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(w.moves))},
					Spec: apiv1.AzVolumeAttachmentSpec{
						VolumeName: "v",
						NodeName:   name,
						Role:       apiv1.RolePrimary,
						Epoch:      ownership.MultiNodeEpoch,
					},
					Status: apiv1.AzVolumeAttachmentStatus{State: apiv1.AttachmentAttached, LUN: ptr.To[int32](0)},
				}
				return nil
			}
		case a.DeletionTimestamp != nil:
			return unpublishMultiNode(name)
		}
		return nil
	}
}

func unpublishMultiNode(name string) step {
	return func(w *world) step {
		a := w.attachment(name)
		if a == nil {
			return nil
		}
		if a.DeletionTimestamp != nil {
			return proveMultiNode(name, a.UID)
		}
		return func(w *world) step {
			return w.deleteAttachment(name, a.UID, proveMultiNode(name, a.UID))
		}
	}
}

func (w *world) deleteAttachment(name string, uid types.UID, next step) step {
	a := w.attachment(name)
	if a == nil || a.UID != uid {
		return nil
	}
	a.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	w.attachments[name] = *a
	return next
}

func proveMultiNode(name string, uid types.UID) step {
	return readProof(name, func(proof *apiv1.ReleaseProof) step {
		return func(w *world) step {
			a := w.attachment(name)
			if a == nil || a.UID != uid {
				return nil
			}
			a.Status.Proof = proof
			w.attachments[name] = *a
			return detachMultiNode(name)
		}
	})
}

func readProof(name string, then func(*apiv1.ReleaseProof) step) step {
	return func(w *world) step {
		report := w.reports[name]
		proof, _ := ownership.UnstagedProof(&report, "v", ownership.MultiNodeEpoch, time.Unix(1, 0))
		if proof == nil {
			return nil // ABORTED; the caller tries again
		}
		return then(proof)
	}
}

// detachMultiNode is the attachment reconciler's part, which looks at what is there and not at who
// asked.
func detachMultiNode(name string) step {
	return func(w *world) step {
		if a := w.attachment(name); a != nil && a.DeletionTimestamp != nil && ownership.ProvedReleased(w.volume(), a) {
			delete(w.attachments, name)
		}
		return nil
	}
}

func TestLaw3NoDetachUnderANodeOfSeveral(t *testing.T) {
	const runs, steps = 4000, 400
	mounts, moves := 0, 0
	for seed := range uint64(runs) {
		w := run(t, seed, steps, multiNode())
		mounts, moves = mounts+w.mounts, moves+w.moves
	}
	if mounts < runs || moves < runs {
		t.Errorf("%d mounts and %d publishes in %d runs: the test does not exercise the protocol", mounts, moves, runs)
	}
	t.Logf("%d runs of %d steps: %d publishes, %d mounts", runs, steps, moves, mounts)
}

// TestTheSimulationFindsAProofFromBeforeTheDeletion shows that the test above would see a
// controller that reads the report first and deletes then.
func TestTheSimulationFindsAProofFromBeforeTheDeletion(t *testing.T) {
	p := multiNode()
	p.unpublish = func(name string) step {
		return readProof(name, func(proof *apiv1.ReleaseProof) step {
			return func(w *world) step {
				a := w.attachment(name)
				if a == nil {
					return nil
				}
				a.Status.Proof = proof
				w.attachments[name] = *a
				return func(w *world) step { return w.deleteAttachment(name, a.UID, detachMultiNode(name)) }
			}
		})
	}
	mustGoWrong(t, p)
}
