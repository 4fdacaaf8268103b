// Package explain says why a pod, a claim, a volume, a node or a snapshot is not ready, and what its
// reader does about that. It is pure: facts in, a report out; package collect reads the facts.
//
// It decides by the driver's own decision functions (internal/plan) and by what the driver has
// recorded in conditions, so that it says nothing else than the driver does. It does not interpret
// sentences: where only the text of an event says something, the text is quoted. What it does not
// recognise, and what lasts longer than expected, has the outcome CannotTell, with what was seen.
package explain

import (
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
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
	return report
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
