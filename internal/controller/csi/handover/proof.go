package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/keeper"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// awaitProof waits for the proof that a node released a volume (law 3): its own report, read from
// the API server after the release was started, or what the attachment reconciler got from Azure.
func (s *Publisher) awaitProof(ctx context.Context, v *apiv1.AzVolume, node string, epoch int64) (*apiv1.ReleaseProof, error) {
	var proof *apiv1.ReleaseProof
	why, holder := "", publishing.Wait{}
	name := apiv1.AttachmentName(v.Name, node)
	err := s.Watch.Until(ctx, func() (bool, error) {
		var err error
		proof, why, holder, err = s.findProof(ctx, v, node, epoch)
		return proof != nil, err
	}, cluster.NodeNamed(node), cluster.AttachmentNamed(name))
	if errors.Is(err, context.DeadlineExceeded) {
		if holder.Failing {
			why = holder.Message
		}
		return nil, grpcstatus.Errorf(codes.Aborted, "no proof yet that node %s released volume %s: %s", node, v.Name, why)
	}
	return proof, err
}

// findProof looks for the proof once. If there is none, why says what is missing, and holder what
// the driver is doing about it.
func (s *Publisher) findProof(ctx context.Context, v *apiv1.AzVolume, node string, epoch int64) (proof *apiv1.ReleaseProof,
	why string, holder publishing.Wait, err error) {
	d, err := s.report(ctx, node)
	if err != nil {
		return nil, "", holder, err
	}
	a, err := s.Attachment(ctx, s.Reader, v.Name, node)
	if err != nil {
		return nil, "", holder, err
	}
	another := false
	if a != nil && d != nil {
		identity, err := s.identity(ctx, node, d)
		if err != nil {
			return nil, "", holder, err
		}
		another = identity.Another(a)
	}
	if another {
		why = "the node names the VM " + d.Spec.VMID + " now, and the attachment is to " + a.Status.VMID
	} else if proof, why = ownership.UnstagedProof(d, v.Name, epoch, s.clock.Now()); proof != nil {
		return proof, "", holder, nil
	}
	if a != nil && a.Status.Proof != nil && a.Status.Proof.Epoch >= epoch {
		return a.Status.Proof, "", holder, nil
	}
	return nil, why, publishing.Holder(v, a), nil
}

// report reads the AzDriverNode of a node from the API server; nil if there is none.
func (s *Publisher) report(ctx context.Context, node string) (*apiv1.AzDriverNode, error) {
	return kube.Find[apiv1.AzDriverNode](ctx, s.Reader, s.Key(node))
}

// restoreAttachment restores an attachment that was lost or edited since the publish, unless the
// node's report proves the release already; see keeper.Restore. The attachment reconciler gets a
// proof from Azure only for the attachment of a primary. This call cannot get one itself, because
// Azure does not list a VM to which it is still attaching the disk.
func (s *Publisher) restoreAttachment(ctx context.Context, v *apiv1.AzVolume,
	a *apiv1.AzVolumeAttachment) (*apiv1.AzVolumeAttachment, error) {
	o := v.Status.Primary
	if ownership.Intact(o, a) {
		return a, nil
	}
	d, err := s.report(ctx, o.NodeName)
	if err != nil {
		return nil, err
	}
	if proof, _ := ownership.UnstagedProof(d, v.Name, o.Epoch, s.clock.Now()); proof != nil {
		return a, nil
	}
	err = cluster.RetryChanged("attachment of "+v.Name+" to node "+o.NodeName, func() error {
		if a, err = s.Attachment(ctx, s.Reader, v.Name, o.NodeName); err != nil {
			return err
		}
		if a, err = keeper.Restore(ctx, s.Client, v, a); apierrors.IsAlreadyExists(err) {
			return cluster.ErrChanged
		}
		return err
	})
	return a, err
}

// recordProof writes the proof to the attachment, if there is one, and returns the attachment after
// that. An attachment that was re-created during the call gets none: all attachments of a
// multi-node volume have one epoch, and the node may use the volume under the new one. One that is
// Preempted keeps its proof until the disk is detached.
func (s *Publisher) recordProof(ctx context.Context, volume, node string, a *apiv1.AzVolumeAttachment,
	proof *apiv1.ReleaseProof) (*apiv1.AzVolumeAttachment, error) {
	if a == nil {
		return nil, nil
	}
	uid := a.UID
	err := cluster.RetryChanged("attachment "+a.Name, func() error {
		if a != nil && a.UID != uid {
			return grpcstatus.Errorf(codes.Aborted,
				"record the proof that node %s released volume %s: another call created the attachment again", node, volume)
		}
		if a == nil {
			return nil
		}
		proved, err := keeper.RecordProof(ctx, s.Client, a, proof)
		if !cluster.IsChanged(err) {
			a = proved
			return err
		}
		current, readErr := s.Attachment(ctx, s.Reader, volume, node)
		if readErr != nil {
			return readErr
		}
		a = current
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record proof: %w", err)
	}
	return a, nil
}

// An AzVolume that was lost, or restored from a backup, does not say which node uses the volume.
// Before a node acquires ownership, the driver reads the attachments, the node reports and Azure.

// history returns the epoch that a new ownership has to exceed, and who is known to use the disk.
// The error is a FailedPrecondition if another cluster, or another node under an ownership that the
// AzVolume does not have, may be using the volume. custody may be nil. v has just been read from
// the API server. Until the new ownership is written, no node may begin to use the volume, so that
// the reports that are read here stay valid.
func (s *Publisher) history(ctx context.Context, v *apiv1.AzVolume, node string, custody custodyCheck) (last int64,
	known ownership.Custody, err error) {
	attachments, err := s.Attachments(ctx, s.Client, v.Name)
	if o := v.Status.Primary; err == nil && (o == nil || ownership.LastEpoch(attachments) > o.Epoch) {
		attachments, err = s.Attachments(ctx, s.Reader, v.Name)
	}
	if err != nil {
		return 0, "", err
	}
	disk := s.disk(ctx, v)
	if known = ownership.CustodyOurs; custody != nil {
		// Before anything is done about the attachments: they may have been restored, and their VMs
		// be the former cluster's.
		if known, err = custody(ctx, v, node, attachments, disk); err != nil {
			return 0, "", err
		}
	}
	unreleased := ownership.UnreleasedElsewhere(v, node, attachments)
	if len(unreleased) > 0 {
		// A publish writes the ownership before the attachment, and may have written it after v was
		// read.
		if err := s.ownershipUnchanged(ctx, v); err != nil {
			return 0, "", err
		}
	}
	for _, a := range unreleased {
		proven, why, err := s.proveUnrecorded(ctx, v, a)
		if err != nil {
			return 0, "", err
		}
		if !proven {
			return 0, "", provisioner.Errorf(provisioner.FailedPrecondition,
				"publish volume %s to node %s: node %s was its primary under epoch %d, which the AzVolume does not have, and there is no proof that it released the volume: %s",
				v.Name, node, a.Spec.NodeName, a.Spec.Epoch, why)
		}
	}
	return ownership.LastEpoch(attachments), known, s.unreported(ctx, v, node, attachments, disk)
}

// proveUnrecorded looks for the proof that the node of an attachment released the volume, and
// records it. It deletes the attachment of a node that is not Ready; then the attachment reconciler
// gets the proof from Azure. The attachment of a Ready node stays: a pod may be using the volume,
// and a publish to its node may acquire ownership again.
func (s *Publisher) proveUnrecorded(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) (proven bool, why string,
	err error) {
	proof, why, _, err := s.findProof(ctx, v, a.Spec.NodeName, a.Spec.Epoch)
	if err != nil {
		return false, "", err
	}
	if proof != nil {
		_, err := s.recordProof(ctx, v.Name, a.Spec.NodeName, a, proof)
		return true, "", err
	}
	node := &corev1.Node{}
	err = s.Reader.Get(ctx, client.ObjectKey{Name: a.Spec.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return false, "", fmt.Errorf("get Node: %w", err)
	}
	if a.DeletionTimestamp == nil && !nodehealth.KubeletReady(node) { // or there is none
		if err := s.remove(ctx, a); client.IgnoreNotFound(err) != nil {
			return false, "", err
		}
	}
	return false, why, nil
}

// unreported returns a FailedPrecondition if Azure says that the disk is attached to a node that
// may be using the volume by its report. Azure is asked only if there may be a node that reports
// the volume under a later epoch or, if the AzVolume has no ownership, a node that has not reported
// since it scanned its mounts. A publish of a volume that lost nothing costs no call. The reports
// may come from the cache: the node wrote them under an ownership that the AzVolume has lost since.
func (s *Publisher) unreported(ctx context.Context, v *apiv1.AzVolume, node string, attachments []*apiv1.AzVolumeAttachment,
	read diskRead) error {
	if found, err := s.reportedByAny(ctx, v); !found {
		return err
	}
	disk, err := read()
	if err != nil {
		return err
	}
	settled := map[string]bool{node: true}
	for _, a := range attachments {
		settled[a.Spec.NodeName] = settled[a.Spec.NodeName] || ownership.HasProof(a)
	}
	for _, vm := range disk.AttachedTo {
		nodes, err := cluster.NodesOfVM(ctx, s.Client, s.Namespace, vm)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if why := ownership.ReportedUse(v, n.DriverNode); why != "" && !settled[n.Node.Name] {
				return provisioner.Errorf(provisioner.FailedPrecondition,
					"publish volume %s to node %s: the volume has no known primary, and its disk is attached to %s: node %s: %s",
					v.Name, node, vm, n.Node.Name, why)
			}
		}
	}
	return nil
}

// reportedByAny reports whether a node may be using a volume under an ownership that its AzVolume
// does not have; see ownership.ReportedUse.
func (s *Publisher) reportedByAny(ctx context.Context, v *apiv1.AzVolume) (bool, error) {
	if v.Status.Primary == nil && s.Watch.AnyUnscanned() {
		return true, nil
	}
	var list apiv1.AzDriverNodeList
	nodes, err := kube.FindBy(ctx, s.Client, &list, &list.Items, s.Namespace, cluster.NodeVolume, v.Name)
	return slices.ContainsFunc(nodes, func(d *apiv1.AzDriverNode) bool { return ownership.ReportedUse(v, d) != "" }), err
}
