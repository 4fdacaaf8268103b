// Package claimstatus decides what the driver says on a PersistentVolumeClaim about its volume: in the
// annotation disk.csi.azure.com/status, and in events. The users of a namespace may read neither the
// AzVolume nor its attachments.
//
// It reads what the driver has recorded in conditions. What a volume waits for has the name that
// package explain and the page on troubleshooting have for it.
package claimstatus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Status is the content of the annotation.
type Status struct {
	// Primary is the node that has the volume. Several nodes of a raw block volume are separated by
	// commas.
	Primary string `json:"primary,omitempty"`
	// Replicas are the attached replicas of those wanted, as in "1/1".
	Replicas string `json:"replicas,omitempty"`
	// Fencing is how the volume is taken from a lost node.
	Fencing string `json:"fencing,omitempty"`
	// WaitsFor is the cause for which the volume, or its next move, waits. It has an entry on the
	// page on troubleshooting.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Since is when that began, as in "2006-01-02T15:04:05Z".
	Since string `json:"since,omitempty"`
}

// Input is the input of Of and WaitOf. The objects are only read.
type Input struct {
	Volume      *apiv1.AzVolume
	Attachments []*apiv1.AzVolumeAttachment
	// Claim is bound to the volume.
	Claim *corev1.PersistentVolumeClaim
	// Users are the names of the pods that use the claim. They matter only if it is being deleted.
	Users []string
	// Holder is the AzDriverNode of the node that has the volume; nil if there is none.
	Holder *apiv1.AzDriverNode
}

// Of returns the status of a claim's volume.
func Of(in Input) Status {
	s := Status{Primary: strings.Join(in.primaries(), ","), Fencing: string(in.Volume.Status.Fencing)}
	if r := in.Volume.Status.Replicas; r != nil {
		s.Replicas = fmt.Sprintf("%d/%d", r.Ready, r.Wanted)
	}
	if w := WaitOf(in); w.Cause != "" {
		s.WaitsFor, s.Since = w.Cause, w.Since.UTC().Format(time.RFC3339)
	}
	return s
}

// Text is the status as it is written.
func (s Status) Text() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings can always be written
	}
	return string(text)
}

// Parse reads the annotation of a claim; ok is false if there is none that can be read.
func Parse(annotations map[string]string) (s Status, ok bool) {
	text, is := annotations[apiv1.AnnotationStatus]
	return s, is && json.Unmarshal([]byte(text), &s) == nil
}

// primaries are the nodes that have the volume.
func (in Input) primaries() []string {
	if in.Volume.Spec.Access != apiv1.AccessMultiNode {
		if p := in.Volume.Status.Primary; p != nil && p.State != apiv1.OwnershipReleased {
			return []string{p.NodeName}
		}
		return nil
	}
	var nodes []string
	for _, a := range in.Attachments {
		if a.DeletionTimestamp == nil && a.Status.State == apiv1.AttachmentAttached {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// attachment returns the attachment to look at for the node that has the volume: of several nodes, the
// first one to which the disk is not attached. It is nil if there is none.
func (in Input) attachment() *apiv1.AzVolumeAttachment {
	all := slices.SortedFunc(slices.Values(in.Attachments), func(a, b *apiv1.AzVolumeAttachment) int {
		return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName)
	})
	for _, a := range all {
		switch p := in.Volume.Status.Primary; {
		case a.Spec.Role != apiv1.RolePrimary:
		case in.Volume.Spec.Access == apiv1.AccessMultiNode:
			if a.DeletionTimestamp == nil && a.Status.State != apiv1.AttachmentAttached {
				return a
			}
		case p != nil && p.State != apiv1.OwnershipReleased && p.NodeName == a.Spec.NodeName:
			return a
		}
	}
	return nil
}
