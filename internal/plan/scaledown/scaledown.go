// Package scaledown decides which Nodes autoscalers are asked not to remove: nodes whose
// reservation of a disk is all that keeps a fenced node from writing: Azure does not document that a
// reservation survives the end of the VM that holds it.
package scaledown

import (
	"maps"
	"slices"
	"strings"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
)

// The annotations of a Node that autoscalers read.
const (
	// ClusterAutoscaler keeps the cluster autoscaler from removing the node.
	ClusterAutoscaler = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// Karpenter keeps Karpenter from removing the node voluntarily.
	Karpenter = "karpenter.sh/do-not-disrupt"
)

// disabled is the value of both.
const disabled = "true"

// Disk is a disk that a node has attached, or is to have.
type Disk struct {
	// Volume is nil if there is no AzVolume.
	Volume     *apiv1.AzVolume
	Attachment *apiv1.AzVolumeAttachment
	// All are the attachments of the volume.
	All []*apiv1.AzVolumeAttachment
}

// Needed returns a node that may be kept from writing only by the reservation of another node, which
// has these disks and this report; "" if there is none. Of the report it depends only on what the
// controller writes: a node can say that it is not needed, and not that it is (law 7).
func Needed(report *apiv1.AzDriverNode, disks []Disk) (fenced string) {
	for _, d := range disks {
		if fenced := attaching.GuardsAgainst(d.Volume, d.Attachment, d.All, report); fenced != "" {
			return fenced
		}
	}
	return ""
}

// Recorded reports whether the controller has set annotations for autoscalers on a Node.
func Recorded(annotations map[string]string) bool {
	return annotations[apiv1.AnnotationScaleDownDisabled] != ""
}

// Annotate returns the annotations of a Node as they are to be, and whether that is a change. A value
// that another program or a person has set stays as it is, also if it allows the removal.
func Annotate(present map[string]string, needed bool) (wanted map[string]string, changed bool) {
	wanted = map[string]string{}
	maps.Copy(wanted, present)
	recorded := strings.Split(present[apiv1.AnnotationScaleDownDisabled], ",")
	var ours []string
	for _, key := range []string{ClusterAutoscaler, Karpenter} {
		value, set := present[key]
		own := value == disabled && slices.Contains(recorded, key)
		switch {
		case needed && (own || !set):
			wanted[key] = disabled
			ours = append(ours, key)
		case own:
			delete(wanted, key)
		}
	}
	delete(wanted, apiv1.AnnotationScaleDownDisabled)
	if len(ours) > 0 {
		wanted[apiv1.AnnotationScaleDownDisabled] = strings.Join(ours, ",")
	}
	return wanted, !maps.Equal(wanted, present)
}
