package controlplane

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// AddNode adds a VM, its Node and its AzDriverNode, whose plug-in has scanned the mounts.
func (p *ControlPlane) AddNode(name, zone, size string) {
	p.t.Helper()
	p.Cloud.AddVM(provisioner.Instance{
		ID:       VMID(name),
		Name:     name,
		Size:     size,
		Location: Location,
		Zone:     zone,
	})
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{ProviderID: "azure://" + VMID(name)}, // as on AKS
	}
	p.must(p.Client.Create(p.t.Context(), node))
	p.nodes = append(p.nodes, name)
	node.Status.Conditions = []corev1.NodeCondition{{
		Type:               corev1.NodeReady,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.Now(),
	}}
	p.must(p.Client.Status().Update(p.t.Context(), node))
	// Admission taints every new node as not ready, and no component here removes the taint.
	node.Spec.Taints = nil
	p.must(p.Client.Update(p.t.Context(), node))
	d := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name},
		Spec: apiv1.AzDriverNodeSpec{
			VMID:     VMID(name),
			VMSize:   size,
			Location: Location,
			Zone:     zone,
		},
	}
	p.must(p.Client.Create(p.t.Context(), d))
	p.Report(name, func(s *apiv1.AzDriverNodeStatus) {
		now := metav1.NowMicro()
		s.HeartbeatTime, s.HeartbeatPeriodSeconds, s.MountsScannedTime = &now, 10, &now
	})
	p.Eventually("capacity of node "+name, func() string {
		current := &apiv1.AzDriverNode{}
		p.must(p.Client.Get(context.Background(), client.ObjectKeyFromObject(d), current))
		if current.Status.Capacity == nil {
			return "not filled in"
		}
		return ""
	})
}

// Report changes what a node plug-in reports.
func (p *ControlPlane) Report(node string, change func(*apiv1.AzDriverNodeStatus)) {
	p.t.Helper()
	d := p.node(node)
	before := d.DeepCopy()
	change(&d.Status)
	p.must(p.Client.Status().Patch(context.Background(), d, client.MergeFrom(before)))
}

// Ask asks a node to fence another one, as the controller does.
func (p *ControlPlane) Ask(node string, request apiv1.FenceRequest) {
	p.t.Helper()
	d := p.node(node)
	before := d.DeepCopy()
	d.Spec.Requests = &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{request}}
	p.must(p.Client.Patch(context.Background(), d, client.MergeFrom(before)))
}

// Stage does what NodeStageVolume does with the API (ADR 0001): it announces and reads. If the
// volume may not be used, it removes the announcement, and the error says why.
func (p *ControlPlane) Stage(disk, node string) error {
	p.t.Helper()
	volume := p.VolumeName(disk)
	a := p.Attachment(disk, node)
	if a == nil {
		return fmt.Errorf("there is no attachment")
	}
	d := p.node(node)
	var before *apiv1.StagedVolume // a pod uses it, and goes on doing so whatever comes of this call
	if i := slices.IndexFunc(d.Status.StagedVolumes, func(e apiv1.StagedVolume) bool { return e.VolumeName == volume }); i >= 0 {
		before = &d.Status.StagedVolumes[i]
	}
	entry := apiv1.StagedVolume{
		VolumeName: volume,
		Epoch:      a.Spec.Epoch,
		Phase:      apiv1.PhaseStaging,
	}
	p.setEntry(node, volume, &entry)
	decision := ownership.MayStage(node, d.Spec.VMID, p.Volume(disk), p.Attachment(disk, node))
	if decision.Outcome != ownership.StageAllowed || decision.Epoch != entry.Epoch {
		p.setEntry(node, volume, before)
		return fmt.Errorf("%s: %s", decision.Outcome, decision.Reason)
	}
	entry.Phase = apiv1.PhaseStaged
	entry.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: "uuid-" + disk}
	p.setEntry(node, volume, &entry)
	return nil
}

func (p *ControlPlane) node(name string) *apiv1.AzDriverNode {
	d := &apiv1.AzDriverNode{}
	p.must(p.Client.Get(context.Background(), client.ObjectKey{Namespace: p.Namespace, Name: name}, d))
	return d
}

// Unstage does what NodeUnstageVolume does with the API.
func (p *ControlPlane) Unstage(disk, node string) {
	p.t.Helper()
	p.setEntry(node, p.VolumeName(disk), nil)
}

func (p *ControlPlane) setEntry(node, volume string, entry *apiv1.StagedVolume) {
	p.t.Helper()
	p.Report(node, func(s *apiv1.AzDriverNodeStatus) {
		var kept []apiv1.StagedVolume
		for _, e := range s.StagedVolumes {
			if e.VolumeName != volume {
				kept = append(kept, e)
			}
		}
		if entry != nil {
			kept = append(kept, *entry)
		}
		s.StagedVolumes = kept
	})
}
