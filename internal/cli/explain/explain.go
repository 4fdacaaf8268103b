// Package explain says why a pod, a claim, a volume, a node or a snapshot is not ready, and what its
// reader does about that. It is pure: facts in, a report out; package collect reads the facts.
//
// It decides by the driver's own decision functions (internal/plan) and by what the driver has
// recorded in conditions, so that it says nothing else than the driver does. It does not interpret
// sentences: where only the text of an event says something, the text is quoted. What it does not
// recognise, and what lasts longer than expected, has the outcome CannotTell, with what was seen.
package explain

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
)

// Explain answers the question of the facts.
func Explain(f Facts) Report {
	findings := f.led(f.findings())
	slices.SortStableFunc(findings, func(a, b Finding) int { return b.Outcome.Severity() - a.Outcome.Severity() })
	report := Report{
		Document: NewDocument("Explanation", f.Now, f.Unread),
		Subject:  f.Subject,
		Finding:  findings[0],
		Chain:    f.chain(),
		Rights:   ScopeCluster,
	}
	if report.ID != apiv1.ReasonOtherVolumeNotMounted { // which has nothing to do with them
		report.Azure = f.azure()
	}
	if !f.wide() || f.unread(AzDriverNodes) && f.unread(NodesResource) {
		report.Rights = ScopeNamespace
	}
	for _, v := range findings[1:] {
		if v.Outcome != cause.Healthy && v.ID != report.ID {
			report.Others = append(report.Others, v)
		}
	}
	for _, v := range append(f.pauses(), f.annotations()...) {
		if v.ID != report.ID {
			report.Others = append(report.Others, v)
		}
	}
	return report
}

// pauses are the volumes that are paused, and the nodes whose failover is.
func (f Facts) pauses() []Finding {
	var findings []Finding
	for _, v := range f.Volumes {
		if finding, ok := f.paused(v, "The driver"); ok {
			findings = append(findings, finding)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Nodes)) {
		d := f.node(name).DriverNode
		if d == nil {
			continue
		}
		if c := meta.FindStatusCondition(d.Status.Conditions, apiv1.NodeConditionFailoverEnabled); c != nil &&
			c.Status == metav1.ConditionFalse {
			findings = append(findings, find(c.Reason, "The volumes of node %s stay there if it is lost.", name).
				quoting(c.Message).seen(Evidence{Object: "AzDriverNode " + name, Says: c.Type + ": False",
				Since: moment(c.LastTransitionTime)}))
		}
	}
	return findings
}

// paused is about a volume that is paused. who is what does nothing because of that.
func (f Facts) paused(v *Volume, who string) (Finding, bool) {
	if v.AzVolume == nil {
		return Finding{}, false
	}
	why := annotation.Paused.Switched(v.AzVolume.Annotations)
	if why == "" {
		return Finding{}, false
	}
	seen := Evidence{Object: "AzVolume " + v.AzVolume.Name, Says: "has " + why}
	if c := meta.FindStatusCondition(v.AzVolume.Status.Conditions, apiv1.VolumeConditionPaused); c != nil &&
		c.Status == metav1.ConditionTrue {
		seen.Since = moment(c.LastTransitionTime)
	}
	return find(apiv1.ReasonVolumePaused, "%s requests nothing at Azure for the volume of %s, because it is paused.", who, v.claim()).
		seen(seen).then("end the pause when its purpose is served: kubectl annotate azv -n %s %s %s-", f.DriverNamespace,
		v.AzVolume.Name, apiv1.AnnotationPaused), true
}

// annotations are the faults in the annotations of the objects that the answer is about.
func (f Facts) annotations() []Finding {
	var findings []Finding
	add := func(kind string, o metav1.Object) {
		for _, fault := range annotation.Faults(kind, o.GetAnnotations()) {
			about := Subject{Kind: Kind(kind), Namespace: o.GetNamespace(), Name: o.GetName()}
			findings = append(findings, find(apiv1.ReasonAnnotationInvalid, "About %s: %s.", about, fault))
		}
	}
	if f.Pod != nil {
		add(annotation.Pod, f.Pod)
	}
	for _, v := range f.Volumes {
		if v.Claim != nil {
			add(annotation.Claim, v.Claim)
		}
		if v.AzVolume != nil {
			add(annotation.Volume, v.AzVolume)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Nodes)) {
		if n := f.node(name).Node; n != nil {
			add(annotation.Node, n)
		}
	}
	return findings
}

// findings are at least one.
func (f Facts) findings() []Finding {
	switch f.Subject.Kind {
	case KindPod:
		return f.pod()
	case KindNode:
		return []Finding{f.nodeSubject(f.Subject.Name)}
	case KindSnapshot:
		return []Finding{f.snapshot()}
	case KindClaim, KindVolume:
	}
	if len(f.Volumes) == 0 {
		return []Finding{find(apiv1.ReasonNotReadable, "The volume of %s is not readable with these rights.", f.Subject)}
	}
	return []Finding{f.volumeSubject(f.Volumes[0])}
}
