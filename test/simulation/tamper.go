package simulation

import (
	"context"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Mutants without one of the repairs that keep the edges of the protocol.
const (
	// NodeNamesItsVM: the controller believes each node which VM it is (law 7).
	NodeNamesItsVM Mutant = "a node names its VM"
	// KubeletIsThere: the controller takes the kubelet of each Node for alive.
	KubeletIsThere Mutant = "kubelets live for ever"
	// FinalCode: a node plug-in that fails and leaves something behind says so with a final code.
	// It does not end such calls by itself, which would hide the code.
	FinalCode Mutant = "final codes"
	// CallsAreRepeated: a node plug-in waits for the kubelet to call again, and ends nothing by
	// itself.
	CallsAreRepeated Mutant = "calls are repeated"
	// NoRecord: a node does not write down which device it has yet to flush (law 3).
	NoRecord Mutant = "no record of the device"
	// MountIsGood: a volume is published as it was staged, even if its ownership or its device has
	// changed.
	MountIsGood Mutant = "every mount is good"
	// NoEpochsOfBefore: an AzVolume without an ownership begins with epoch 1, whatever its
	// attachments say.
	NoEpochsOfBefore Mutant = "no epochs of before"
	// KubeletUnstages: a node leaves it to the kubelet to unstage a volume that no pod uses.
	KubeletUnstages Mutant = "the kubelet unstages"
	// StagingIsStaged: a node that waits for its disk is taken for one that uses it.
	StagingIsStaged Mutant = "Staging is Staged"
	// DevicesOfOthers: a node uses a device that another volume is staged with.
	DevicesOfOthers Mutant = "devices of others"
	// EntriesStayAway: a node does not write an entry again that others took out of its report (law
	// 3).
	EntriesStayAway Mutant = "entries stay away"
	// KeptIsGone: an AzVolume that was deleted counts as one that is on its way out, also if the driver
	// keeps it.
	KeptIsGone Mutant = "what is kept is gone"
)

type publishing struct{}

// tamper changes an object that has been read.
func (t tampered) tamper(ctx context.Context, o client.Object) {
	switch t.w.options.Mutant {
	case NodeNamesItsVM:
		if n, ok := o.(*corev1.Node); ok && t.node == "" {
			if d := t.w.report(t.w.machine(n.Name)); d != nil {
				n.Spec.ProviderID = "azure://" + d.Spec.VMID
			}
		}
	case KubeletIsThere:
		if n, ok := o.(*corev1.Node); ok && t.node == "" {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = corev1.ConditionTrue
			}
		}
	case MountIsGood:
		if ctx.Value(publishing{}) != nil && t.node != "" {
			t.asRecorded(o)
		}
	case CopiesBelieved:
		if a, ok := o.(*apiv1.AzVolumeAttachment); ok && t.node == "" {
			a.Status.UID = a.UID
		}
	case LeavesEarly:
		if a, ok := o.(*apiv1.AzVolumeAttachment); ok && t.node != "" && a.Spec.NodeName != t.node {
			a.Status.Proof = nil
		}
	case NoEpochsOfBefore:
		if a, ok := o.(*apiv1.AzVolumeAttachment); ok && t.node == "" {
			if v := t.w.volume(a.Spec.VolumeName); v != nil && v.Status.Primary == nil {
				a.Spec.Epoch = 0
			}
		}
	case KeptIsGone:
		if v, ok := o.(*apiv1.AzVolume); ok && t.node == "" && v.DeletionTimestamp != nil {
			v.Spec.DeletionPolicy = apiv1.DeletionDelete
		}
	case KubeletUnstages:
		if v, ok := o.(*apiv1.AzVolume); ok && t.node != "" && v.Status.Primary != nil {
			v.Status.Primary.LastTransitionTime = nil
		}
	case StagingIsStaged:
		if d, ok := o.(*apiv1.AzDriverNode); ok && t.node == "" {
			for i := range d.Status.StagedVolumes {
				d.Status.StagedVolumes[i].Phase = apiv1.PhaseStaged
			}
		}
	}
}

// asRecorded sets ownership and attachment to what they were when the node staged the volume.
func (t tampered) asRecorded(o client.Object) {
	switch o := o.(type) {
	case *apiv1.AzVolume:
		if record, found, err := t.w.machine(t.node).records.Get(o.Name); err == nil && found {
			o.Status.Primary = &apiv1.Ownership{
				NodeName: t.node,
				Epoch:    record.Epoch,
				State:    apiv1.OwnershipHeld,
			}
		}
	case *apiv1.AzVolumeAttachment:
		if record, found, err := t.w.machine(t.node).records.Get(o.Spec.VolumeName); err == nil && found {
			o.Spec.Role, o.Spec.Epoch, o.Status.Proof, o.DeletionTimestamp = apiv1.RolePrimary, record.Epoch, nil, nil
		}
	}
}

// copied has objects copied, whatever the caller allows: what is changed must not be the cache's.
type copied struct{}

// ApplyToGet implements client.GetOption.
func (copied) ApplyToGet(o *client.GetOptions) { o.UnsafeDisableDeepCopy = nil }

// ApplyToList implements client.ListOption.
func (copied) ApplyToList(o *client.ListOptions) { o.UnsafeDisableDeepCopy = nil }

// List implements client.Reader.
func (t tampered) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	options = append(options, copied{})
	if nodes, ok := list.(*corev1.NodeList); ok && t.node == "" && t.w.options.Mutant == NodeNamesItsVM {
		return t.listNodes(ctx, nodes, options)
	}
	if err := t.Client.List(ctx, list, options...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(o runtime.Object) error {
		t.tamper(ctx, o.(client.Object))
		t.hideFenced(o)
		return nil
	})
}

// hideFenced shows a node that was fenced by a pre-emption as one whose disk is detached, in lists
// of a volume's attachments. The reconciler of the attachment reads it by its name, and continues
// to detach the disk.
func (t tampered) hideFenced(o runtime.Object) {
	if a, ok := o.(*apiv1.AzVolumeAttachment); ok && t.w.options.Mutant == NoHolder && t.node == "" && ownership.Preempted(a) {
		a.Status.Proof.Type = apiv1.ProofDetached
	}
}

// listNodes lists the Nodes that name a VM as if each named the one that its node plug-in names:
// the index has what they name in truth.
func (t tampered) listNodes(ctx context.Context, nodes *corev1.NodeList, options []client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	vm, byVM := "", false
	if asked.FieldSelector != nil {
		vm, byVM = asked.FieldSelector.RequiresExactMatch(cluster.NodeVM)
	}
	if byVM {
		options = []client.ListOption{copied{}}
	}
	if err := t.Client.List(ctx, nodes, options...); err != nil {
		return err
	}
	for i := range nodes.Items {
		t.tamper(ctx, &nodes.Items[i])
	}
	nodes.Items = slices.DeleteFunc(nodes.Items,
		func(n corev1.Node) bool { return byVM && !slices.Contains(cluster.NodeVMKeys(&n), vm) })
	return nil
}

// answer is what the caller of a node plug-in gets.
func (w *world) answer(err error) error {
	if w.options.Mutant == FinalCode && status.Code(err) == codes.Unavailable {
		return status.Error(codes.Internal, err.Error())
	}
	return err
}

// keepAway takes those entries out of a report that is written which the API server does not have,
// but for what is announced.
func (t tampered) keepAway(d *apiv1.AzDriverNode) {
	stored := map[string]bool{}
	if before := t.w.report(t.w.machine(t.node)); before != nil {
		for _, e := range before.Status.StagedVolumes {
			stored[e.VolumeName] = true
		}
	}
	var left []apiv1.StagedVolume
	for _, e := range d.Status.StagedVolumes {
		if stored[e.VolumeName] || e.Phase == apiv1.PhaseStaging {
			left = append(left, e)
		}
	}
	d.Status.StagedVolumes = left
	d.Status.ReportDigest = ownership.ReportDigest(d)
}

// believed reports whether a device counts as good without a check.
func (k kernel) believed(ctx context.Context) bool {
	return k.m.w.options.Mutant == MountIsGood && ctx.Value(publishing{}) != nil
}

// forgetOwners makes the records of a disk's volume those of another boot, so that nothing says
// whose device it is.
func (k kernel) forgetOwners(volume string) {
	if k.m.w.options.Mutant != DevicesOfOthers {
		return
	}
	if record, found, err := k.m.records.Get(volume); err == nil && found {
		record.BootID = "another boot"
		k.m.w.must(k.m.records.Put(record))
	}
}

// metadata is what a node has of instance metadata.
func (w *world) metadata(diskAt func(context.Context, int32) (string, error)) func(context.Context, int32) (string, error) {
	if w.options.Mutant == DevicesOfOthers {
		return nil
	}
	return diskAt
}

// dropAdopted deletes the record that a scan or NodeUnstageVolume wrote for a mount at a staging
// path that had none. Such a record has no epoch.
func (k kernel) dropAdopted(target string) {
	mount, found := k.m.mounts[target]
	if k.m.w.options.Mutant != NoRecord || !found || filepath.Base(target) != stagingName {
		return
	}
	if record, found, err := k.m.records.Get(mount.volume); err == nil && found && record.Epoch == 0 {
		k.m.w.must(k.m.records.Delete(mount.volume))
	}
}
