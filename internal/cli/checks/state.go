package checks

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func (f Facts) registered() []problem {
	var found []problem
	reported, kubelets := map[string]bool{}, map[string]bool{}
	for _, n := range f.CSINodes {
		for _, d := range n.Spec.Drivers {
			if d.Name == f.DriverName {
				kubelets[n.Name] = true
			}
		}
	}
	for _, d := range f.DriverNodes {
		reported[d.Name] = true
		if n := f.node(d.Name); n == nil || !nodehealth.KubeletReady(n) {
			continue
		}
		if !kubelets[d.Name] {
			found = append(found, failed("the CSINode of node %s does not list the driver", d.Name))
		}
		for _, kind := range []string{apiv1.NodeConditionPluginReady, apiv1.NodeConditionVMKnown} {
			if c := meta.FindStatusCondition(d.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
				found = append(found, failed("node %s: %s", d.Name, c.Reason))
			}
		}
	}
	for _, n := range f.CSINodes {
		if kubelets[n.Name] && !reported[n.Name] {
			found = append(found, failed("the node plug-in of node %s has not reported", n.Name))
		}
	}
	return found
}

func (f Facts) heartbeats() []problem {
	var found []problem
	for _, d := range f.DriverNodes {
		j := nodehealth.PublishedJudgement(d)
		switch {
		case j.Guarded():
			found = append(found, failed("node %s: %s", d.Name, j.HeldBack))
		case j.State.LostOrDown():
			found = append(found, failed("node %s is %s: %s", d.Name, j.State, j.Evidence))
		case j.State != nodehealth.Healthy:
			found = append(found, warning("node %s is %s: %s", d.Name, j.State, j.Evidence))
		case f.node(d.Name) != nil && !nodehealth.KubeletReady(f.node(d.Name)):
			found = append(found, warning("Kubernetes does not see node %s as Ready, and its node plug-in reports", d.Name))
		}
	}
	return found
}

// settled is how long something may be under way before it counts.
const settled = 5 * time.Minute

func (f Facts) probes() []problem {
	var found []problem
	var never []string
	for _, d := range f.DriverNodes {
		c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionProbeable)
		state, _ := nodehealth.Published(d)
		switch {
		case c != nil && c.Reason == apiv1.ReasonProbesDisabled:
			return []problem{warning("probes are switched off (controller.failover.probe)")}
		case c != nil && c.Status == metav1.ConditionFalse:
			found = append(found, warning("node %s: heartbeats arrive, and probes fail", d.Name))
		case (c == nil || c.Status == metav1.ConditionUnknown) && state == nodehealth.Healthy &&
			f.Now.Sub(d.CreationTimestamp.Time) > settled:
			never = append(never, d.Name)
		}
	}
	if len(never) > 0 {
		found = append(found, warning("no probe has reached %s", few(never)))
	}
	return found
}

func (f Facts) replicas() []problem {
	var found []problem
	for _, v := range f.Volumes {
		c := meta.FindStatusCondition(v.Status.Conditions, apiv1.VolumeConditionReplicasAttached)
		if c == nil || c.Reason != apiv1.ReasonReplicasMissing || f.Now.Sub(c.LastTransitionTime.Time) < settled {
			continue
		}
		found = append(found, warning("%s lacks replicas", nameOf(v)))
	}
	return found
}

// nameOf names a volume by its claim, if it has one.
func nameOf(v *apiv1.AzVolume) string {
	if claim := v.Claim().String(); claim != "" {
		return "claim " + claim
	}
	return "AzVolume " + v.Name
}

func (f Facts) volumeAttachments() []problem {
	pvs := map[string]bool{}
	for _, pv := range f.PersistentVolumes {
		pvs[pv.Name] = true
	}
	var found []problem
	for _, a := range f.VolumeAttachments {
		pv := a.Spec.Source.PersistentVolumeName
		switch {
		case a.Spec.Attacher != f.DriverName:
		case f.CSIDriver != nil && !f.attachRequired():
			found = append(found, warning("VolumeAttachment %s: the CSIDriver says that none is needed", a.Name))
		case f.node(a.Spec.NodeName) == nil:
			found = append(found, warning("VolumeAttachment %s is of node %s, which does not exist", a.Name, a.Spec.NodeName))
		case pv != nil && !pvs[*pv]:
			found = append(found, warning("VolumeAttachment %s is of PersistentVolume %s, which does not exist", a.Name, *pv))
		}
	}
	return found
}

func (f Facts) records() []problem {
	volumes, fenced := map[string]bool{}, false
	for _, v := range f.Volumes {
		volumes[v.Name] = true
	}
	var found []problem
	for _, a := range f.Attachments {
		fenced = fenced || a.DeletionTimestamp != nil
		switch {
		case a.DeletionTimestamp != nil && f.Now.Sub(a.DeletionTimestamp.Time) > settled:
			found = append(found, warning("the attachment of %s to node %s has been deleted for %s and does not end",
				a.Spec.VolumeName, a.Spec.NodeName, f.Now.Sub(a.DeletionTimestamp.Time).Round(time.Minute)))
		case a.DeletionTimestamp == nil && !volumes[a.Spec.VolumeName]:
			found = append(found, warning("the attachment %s is of a volume that does not exist", a.Name))
		}
	}
	for _, d := range f.DriverNodes {
		c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionGuards)
		if c != nil && c.Status == metav1.ConditionTrue && !fenced && f.Now.Sub(c.LastTransitionTime.Time) > settled {
			found = append(found, warning("node %s keeps reservations, and no node is being fenced", d.Name))
		}
	}
	return found
}

func (f Facts) slots() []problem {
	var found []problem
	var full []string
	for _, row := range explain.NodeRows(f.DriverNodes, nil, f.Attachments) {
		if row.SlotsFree != nil && *row.SlotsFree <= 0 {
			full = append(full, row.Name)
		}
	}
	if len(full) > 0 {
		found = append(found, warning("no slot is free on %s", few(full)))
	}
	for _, a := range f.Attachments {
		c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached)
		if c != nil && c.Reason == apiv1.ReasonNoDiskSlot {
			found = append(found, failed("volume %s waits for a slot on node %s", a.Spec.VolumeName, a.Spec.NodeName))
		}
	}
	return found
}

const (
	// clockDifference is more than the header Date and a slow write explain.
	clockDifference = 5 * time.Second
	// lateReport is how late a report of a healthy node may be by its own clock.
	lateReport = time.Minute
)

func (f Facts) clocks() []problem {
	var found []problem
	for _, d := range f.DriverNodes {
		at := d.Status.HeartbeatTime
		if at == nil {
			continue
		}
		state, _ := nodehealth.Published(d)
		promised := time.Duration(d.Status.HeartbeatPeriodSeconds) * time.Second
		switch ahead := at.Sub(f.Now); {
		case ahead > clockDifference:
			found = append(found, warning("the clock of node %s is %s ahead", d.Name, ahead.Round(time.Second)))
		case state == nodehealth.Healthy && -ahead > promised+lateReport:
			found = append(found, warning("the clock of node %s is about %s behind", d.Name,
				(-ahead-promised).Round(time.Second)))
		}
	}
	for _, l := range f.Leases {
		if at := l.Spec.RenewTime; at != nil && at.Sub(f.Now) > clockDifference {
			found = append(found, warning("the clock of the holder of the lease %s is %s ahead", l.Name,
				at.Sub(f.Now).Round(time.Second)))
		}
	}
	return found
}

// azure returns a check of the recorded failures of requests to Azure with one of the causes.
func azure(result Result, causes ...string) func(Facts) []problem {
	return func(f Facts) []problem {
		var found []problem
		add := func(of string, e *apiv1.Error) {
			if e == nil {
				return
			}
			if id := cause.OfError(e, ""); slices.Contains(causes, id) {
				found = append(found, problem{result, id + ", " + of + ": " + e.Message})
			}
		}
		for _, v := range f.Volumes {
			add(nameOf(v), v.Status.Error)
		}
		for _, a := range f.Attachments {
			add("attachment "+a.Name, a.Status.Error)
		}
		return found
	}
}

func (f Facts) writes() []problem {
	var found []problem
	for _, e := range f.Refusals {
		if f.Now.Sub(explain.EventTime(e).Time) < time.Hour {
			found = append(found, failed("%s %s: %s", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name, e.Message))
		}
	}
	return found
}
