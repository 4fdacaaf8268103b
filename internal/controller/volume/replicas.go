package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/controller/keeper"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
)

// replicaPlan is what to do about a volume's replicas.
type replicaPlan struct {
	placement.Step
	repair   ownership.Repair
	target   placement.Target
	attached int
}

func (r *Reconciler) planReplicas(ctx context.Context, o observed) (replicaPlan, error) {
	p := replicaPlan{repair: ownership.Repairs(o.volume, o.attachments, o.now)}
	in := placement.Input{
		Now:              o.now,
		Volume:           o.volume,
		PersistentVolume: o.pv,
		Attachments:      o.attachments,
		ReservedSlots:    r.ReservedSlots,
		NodeLabel:        r.NodeLabel,
		CleanUpDelay:     r.CleanUpDelay,
		DrainGrace:       r.DrainGrace,
	}
	p.target = placement.ReplicaTarget(in)
	for _, a := range o.attachments {
		if a.Spec.Role == apiv1.RoleReplica && a.DeletionTimestamp == nil && a.Status.State == apiv1.AttachmentAttached &&
			!ownership.OwnedBy(o.volume, a.Spec.NodeName) {
			p.attached++
		}
	}
	defer func() { r.metrics.replicas(o.volume.Name, p.target.Floor, p.attached) }()
	if p.target.Floor == 0 {
		r.metrics.steering(o.volume.Name, nil)
		if len(o.attachments) == 0 {
			return p, nil
		}
	}
	if err := r.see(ctx, o, &in); err != nil {
		return p, err
	}
	if p.target.Floor > 0 {
		r.metrics.steering(o.volume.Name, in.Pods)
	}
	p.Step = placement.Next(in)
	p.attached -= len(p.Closed)
	return p, nil
}

// status sets the number of replicas and the condition ReplicasAttached.
func (p replicaPlan) status(o observed, status *apiv1.AzVolumeStatus) {
	status.Replicas = nil
	// For some seconds of each move there is one replica more than wanted. Two more writes for that
	// would delay the move.
	if o.volume.Spec.MaxMountReplicaCount > 0 {
		status.Replicas = &apiv1.ReplicaCount{Ready: int32(min(p.attached, p.target.Floor)), Wanted: int32(p.target.Floor)}
	}
	c := metav1.Condition{
		Type:               apiv1.VolumeConditionReplicasAttached,
		Status:             metav1.ConditionTrue,
		Reason:             apiv1.ReasonReplicasAttached,
		ObservedGeneration: o.volume.Generation,
		LastTransitionTime: metav1.NewTime(o.now),
	}
	switch {
	case p.target.Floor == 0 && len(p.Guards) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, apiv1.ReasonGuardsFencedNode, p.guardsMessage()
	case p.target.Floor == 0:
		c.Reason = apiv1.ReasonReplicasNotWanted
	case p.attached < p.target.Floor:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, apiv1.ReasonReplicasMissing, p.Why
	}
	meta.SetStatusCondition(&status.Conditions, c)
}

func (p replicaPlan) guardsMessage() string {
	parts := make([]string, 0, len(p.Guards))
	for _, k := range p.Guards {
		parts = append(parts, fmt.Sprintf(
			"the replica on node %s is kept until the disk is detached from node %s, which only its reservation keeps from writing", k.Node, k.For))
	}
	return operation.Shorten(strings.Join(parts, "; "))
}

func (r *Reconciler) actOnReplicas(ctx context.Context, o observed, p replicaPlan) (time.Duration, error) {
	if err := r.doRepair(ctx, o, p.repair); err != nil {
		return 0, err
	}
	if slices.ContainsFunc(p.Decisions, func(d placement.Decision) bool { return d.Verb == placement.Create }) {
		if err := r.allSeen(ctx, o); err != nil {
			return 0, err
		}
	}
	for _, d := range p.Decisions {
		if err := r.do(ctx, o, d); err != nil {
			return 0, err
		}
	}
	after := operation.Sooner(p.repair.In, p.ChangesIn)
	if p.Short {
		after = operation.Sooner(after, placeRetry(o))
	}
	return after, nil
}

// placeRetry is when to search a place again, after there was none: free slots cause no event of a
// volume. The wait grows with the time for which replicas have been missing; nodes that are new or
// recover do not wait for it.
func placeRetry(o observed) time.Duration {
	missing := time.Duration(0)
	if c := meta.FindStatusCondition(o.volume.Status.Conditions, apiv1.VolumeConditionReplicasAttached); c != nil &&
		c.Status == metav1.ConditionFalse {
		missing = o.now.Sub(c.LastTransitionTime.Time)
	}
	return min(max(missing/2, firstPlaceRetry), lastPlaceRetry)
}

func (r *Reconciler) do(ctx context.Context, o observed, d placement.Decision) error {
	ctrl.LoggerFrom(ctx).Info("changing replicas", "verb", d.Verb, "volume", o.volume.Name, "node", d.Node, "reason", d.Reason)
	if d.Verb == placement.Create {
		err := r.create(ctx, o.volume, apiv1.AzVolumeAttachmentSpec{NodeName: d.Node, Role: apiv1.RoleReplica})
		if err == nil {
			r.event(o.volume, false, d.Reason, "replica on node "+d.Node)
		}
		return err
	}
	if err := r.stillWanted(ctx, o, d.Reason); err != nil {
		return err
	}
	if err := keeper.Delete(ctx, r.Client, d.Attachment); err != nil {
		return err
	}
	r.metrics.removals.WithLabelValues(d.Reason).Inc()
	r.event(o.volume, false, d.Reason, "replica on node "+d.Node+" is detached")
	return nil
}

// allSeen returns a conflict if the volume has an attachment that the cache does not know yet. That
// may be the replica that the last step has created, and another one in its place would cost Azure
// an attach and a detach.
func (r *Reconciler) allSeen(ctx context.Context, o observed) error {
	current, err := cluster.Attachments(ctx, r.Reader, o.volume.Namespace, cluster.AttachmentVolume, o.volume.Name)
	if err != nil {
		return err
	}
	for _, a := range current {
		if !slices.ContainsFunc(o.attachments, func(seen *apiv1.AzVolumeAttachment) bool { return seen.UID == a.UID }) {
			return apierrors.NewConflict(apiv1.GroupVersion.WithResource("azvolumeattachments").GroupResource(), a.Name,
				errors.New("it is new"))
		}
	}
	return nil
}

// stillWanted reads the volume from the API server before replicas are cleaned up, because an
// ownership that the cache does not know yet could need them. Without them the hand-over would be
// correct, but slower.
func (r *Reconciler) stillWanted(ctx context.Context, o observed, reason string) error {
	if reason != apiv1.ReasonReplicasExpired && reason != apiv1.ReasonVolumeReleased {
		return nil
	}
	return r.unchanged(ctx, o.volume)
}

func (r *Reconciler) detachAll(ctx context.Context, o observed, reason string) error {
	for _, a := range o.attachments {
		if a.DeletionTimestamp != nil {
			continue
		}
		if fenced := ownership.GuardsAgainst(o.volume, a, o.attachments); fenced != "" {
			// The end of the fenced node's attachment is an event of the volume.
			ctrl.LoggerFrom(ctx).Info("the disk stays attached until it is detached from a fenced node",
				"volume", o.volume.Name, "node", a.Spec.NodeName, "fenced", fenced, "reason", apiv1.ReasonGuardsFencedNode)
			continue
		}
		if err := keeper.Delete(ctx, r.Client, a); err != nil {
			return err
		}
		ctrl.LoggerFrom(ctx).Info("detaching", "volume", o.volume.Name, "node", a.Spec.NodeName, "reason", reason)
	}
	return nil
}

func (r *Reconciler) doRepair(ctx context.Context, o observed, repair ownership.Repair) error {
	for _, a := range repair.Demote {
		if _, err := keeper.Demote(ctx, r.Client, o.volume, a); err != nil {
			return err
		}
		r.event(o.volume, false, apiv1.ReasonRoleRepaired, "the former primary on node "+a.Spec.NodeName+" is a replica now")
	}
	for _, a := range repair.Remove {
		if err := keeper.Delete(ctx, r.Client, a); err != nil {
			return err
		}
		r.event(o.volume, false, apiv1.ReasonRoleRepaired, "the former primary on node "+a.Spec.NodeName+" is detached")
	}
	if a := repair.Promote; a != nil {
		spec := a.Spec
		if o.pv != nil { // the edit may have changed readOnly, which means nothing for a replica
			spec.ReadOnly = cluster.ReadOnly(o.pv)
		}
		if _, err := keeper.Promote(ctx, r.Client, a, spec); err != nil {
			return err
		}
		r.event(o.volume, true, apiv1.ReasonRoleRepaired,
			"node "+a.Spec.NodeName+" is primary and its attachment was edited to be a replica")
	}
	if repair.Primary != "" {
		// No release would delete the primary of an ownership that is over, or of an AzVolume that
		// was lost.
		if err := r.unchanged(ctx, o.volume); err != nil {
			return err
		}
		spec := apiv1.AzVolumeAttachmentSpec{
			NodeName: repair.Primary,
			Role:     apiv1.RolePrimary,
			Epoch:    o.volume.Status.Primary.Epoch,
			ReadOnly: cluster.ReadOnly(o.pv),
		}
		if err := r.create(ctx, o.volume, spec); err != nil {
			return err
		}
		r.event(o.volume, true, apiv1.ReasonPrimaryRecreated,
			"node "+repair.Primary+" is primary and its attachment was missing")
	}
	return nil
}

func (r *Reconciler) create(ctx context.Context, v *apiv1.AzVolume, spec apiv1.AzVolumeAttachmentSpec) error {
	spec.VolumeName = v.Name
	if _, err := keeper.Create(ctx, r.Client, v.Namespace, spec); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
