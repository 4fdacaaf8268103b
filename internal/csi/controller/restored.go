package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// An AzVolume that was lost, or restored from a backup, does not know who uses the volume. Before it is claimed, those are asked who do; see plan/restored.go.

// history returns the epoch past which a claim has to be, and a FailedPrecondition where another node may be using the volume under a claim that the AzVolume does not
// know. v has just been read from the API server. Until the claim is written no node may begin to use the volume, so that the reports count that are read here.
func (s *Server) history(ctx context.Context, v *apiv1.AzVolume, node string) (last int64, err error) {
	attachments, err := s.ofVolume(ctx, v.Name)
	if claim := v.Status.Primary; err == nil && (claim == nil || ownership.LastEpoch(attachments) > claim.Epoch) {
		attachments, err = s.attachmentsOf(ctx, s.Reader, v.Name)
	}
	if err != nil {
		return 0, err
	}
	for _, a := range ownership.UnprovenElsewhere(v, node, attachments) {
		proven, why, err := s.proveForgotten(ctx, v, a)
		if err != nil {
			return 0, err
		}
		if !proven {
			return 0, provisioner.Errorf(provisioner.FailedPrecondition, "node %s was primary of volume %s under epoch %d, of which the AzVolume does not know, and there is no proof that it let go: %s",
				a.Spec.NodeName, v.Name, a.Spec.Epoch, why)
		}
	}
	return ownership.LastEpoch(attachments), s.unreported(ctx, v, node, attachments)
}

// proveForgotten looks for the proof that the node of an attachment let go, and records it. The attachment of a node that does not answer is deleted, upon which
// the attachment reconciler has Azure give the proof. One that is there stays: a pod may be using the volume, and its node may claim it.
func (s *Server) proveForgotten(ctx context.Context, v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) (proven bool, why string, err error) {
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
	if a.DeletionTimestamp == nil && (err != nil || !nodehealth.KubeletReady(node)) {
		if err := s.remove(ctx, a); client.IgnoreNotFound(err) != nil {
			return false, "", err
		}
	}
	return false, why, nil
}

// unreported returns a FailedPrecondition if Azure says that the disk is attached to a node that may be using the volume by its report. Azure is
// asked only if there is such a node: the claims of a volume that lost nothing cost no call.
func (s *Server) unreported(ctx context.Context, v *apiv1.AzVolume, node string, attachments []*apiv1.AzVolumeAttachment) error {
	suspects, err := s.suspects(ctx, v, node, attachments)
	if err != nil || len(suspects) == 0 {
		return err
	}
	disk, err := s.Disks.Get(ctx, volumehandle.Of(v.Spec.Disk).String())
	if errors.Is(err, provisioner.NotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read disk: %w", err)
	}
	for _, vm := range disk.AttachedTo {
		if why := suspects[strings.ToLower(vm)]; why != "" {
			return provisioner.Errorf(provisioner.FailedPrecondition, "volume %s has no known primary, and its disk is attached to %s: %s", v.Name, vm, why)
		}
	}
	return nil
}

// suspects returns why nodes without a proof may be using a volume, by their VMs in lower case. The cache is good enough: what a report says here was written
// under a claim that was lost since.
func (s *Server) suspects(ctx context.Context, v *apiv1.AzVolume, node string, attachments []*apiv1.AzVolumeAttachment) (map[string]string, error) {
	var nodes corev1.NodeList
	if err := s.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	var driverNodes apiv1.AzDriverNodeList
	if err := s.Client.List(ctx, &driverNodes, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AzDriverNodes: %w", err)
	}
	reports, settled := map[string]*apiv1.AzDriverNode{}, map[string]bool{node: true}
	for i := range driverNodes.Items {
		reports[driverNodes.Items[i].Name] = &driverNodes.Items[i]
	}
	for _, a := range attachments {
		settled[a.Spec.NodeName] = settled[a.Spec.NodeName] || ownership.HasProof(a)
	}
	found := map[string]string{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		why := ""
		if !settled[n.Name] {
			why = ownership.ReportedUse(v, reports[n.Name])
		}
		if why == "" {
			continue
		}
		vm := identity.ProviderVM(n)
		if vm == "" && reports[n.Name] != nil {
			vm = reports[n.Name].Spec.VMID
		}
		found[strings.ToLower(vm)] = "node " + n.Name + ": " + why
	}
	return found, nil
}
