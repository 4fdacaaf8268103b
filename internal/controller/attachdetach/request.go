package attachdetach

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// request returns the call that publishes a volume to a node for a pod of a namespace, and the name
// of the volume for the user. If the PersistentVolume does not exist, the error is NotFound.
func (r *Reconciler) request(ctx context.Context, by source, namespace, node string) (*csi.ControllerPublishVolumeRequest,
	string, error) {
	log := ctrl.LoggerFrom(ctx)
	if by.inline != nil {
		pv, err := csitranslation.New().TranslateInTreeInlineVolumeToCSI(log, by.inline, namespace)
		if err != nil {
			return nil, by.inline.Name, fmt.Errorf("translate in-tree volume: %w", err)
		}
		request, err := publishRequest(log, pv, node)
		return request, by.inline.Name, err
	}
	// The parameters of the publish are in fields that the cache omits.
	pv := &corev1.PersistentVolume{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(by.pv), pv); err != nil {
		return nil, by.pv.Name, fmt.Errorf("read PersistentVolume: %w", err)
	}
	request, err := publishRequest(log, pv, node)
	return request, pv.Name, err
}

// publishRequest is the call that publishes a PersistentVolume to a node: the same that
// csi-attacher makes of it.
func publishRequest(log logr.Logger, pv *corev1.PersistentVolume, node string) (*csi.ControllerPublishVolumeRequest, error) {
	if pv.Spec.CSI == nil {
		translated, err := csitranslation.New().TranslateInTreePVToCSI(log, pv)
		if err != nil {
			return nil, fmt.Errorf("translate in-tree PersistentVolume: %w", err)
		}
		pv = translated
	}
	mode, err := accessmodes.ToCSIAccessMode(pv.Spec.AccessModes, true)
	if err != nil {
		return nil, fmt.Errorf("access modes %v: %w; give PersistentVolume %s one of them alone (kubectl patch pv), which is possible "+
			"while a claim is bound to it", pv.Spec.AccessModes, err, pv.Name)
	}
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
			FsType: pv.Spec.CSI.FSType, MountFlags: pv.Spec.MountOptions,
		}}
	}
	return &csi.ControllerPublishVolumeRequest{
		VolumeId:         pv.Spec.CSI.VolumeHandle,
		NodeId:           node,
		VolumeCapability: capability,
		Readonly:         pv.Spec.CSI.ReadOnly,
		VolumeContext:    pv.Spec.CSI.VolumeAttributes,
	}, nil
}

// describe returns what an error says, for the user, who need not know that it came over gRPC.
func describe(err error) string {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		return g.GRPCStatus().Message()
	}
	return err.Error()
}
