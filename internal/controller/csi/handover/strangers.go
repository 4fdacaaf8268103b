package handover

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// notForStrangers returns a FailedPrecondition if Kubernetes asks for the volume on a node where
// only pods want it that name its disk as azureDisk, and a claim of another namespace has it. v is
// nil if there is no AzVolume. The request does not name the pod, so the pods on the node do.
// Without VolumeAttachments the caller knows the pod, and has asked.
func (s *Publisher) notForStrangers(ctx context.Context, handle volumehandle.Handle, v *apiv1.AzVolume, node string) error {
	if !s.ByVolumeAttachments {
		return nil
	}
	volume := handle.VolumeName()
	pvs, err := cluster.PersistentVolumes(ctx, s.Client, volume)
	if err != nil {
		return err
	}
	pvs = slices.DeleteFunc(pvs, func(pv *corev1.PersistentVolume) bool {
		of, err := volumehandle.Parse(pv.Spec.CSI.VolumeHandle)
		return err != nil || !of.Same(handle)
	})
	if publishing.ClaimElsewhere("", pvs, v) == "" {
		return nil // no claim has the disk
	}
	for _, pv := range pvs {
		pods, err := cluster.PodsOf(ctx, s.Client, pv)
		if err != nil || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node }) {
			return err
		}
	}
	// The cache may not have the pod yet, so the API server decides.
	byClaim, naming, err := cluster.UsersOn(ctx, s.Reader, s.Client, volume, node)
	if err != nil || len(byClaim) > 0 {
		return err
	}
	var refusal error
	for _, p := range naming {
		claim := publishing.ClaimElsewhere(p.Namespace, pvs, v)
		if claim == "" {
			return nil
		}
		refusal = provisioner.Errorf(provisioner.FailedPrecondition,
			"publish volume %s to node %s: pod %s/%s names its disk as azureDisk, and claim %s of another namespace has it",
			volume, node, p.Namespace, p.Name, claim)
	}
	return refusal
}
