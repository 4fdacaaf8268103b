package explain

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Without a leader no controller judges nodes or moves volumes, and what is recorded grows old: no
// answer is Healthy then.

const (
	notLeading = apiv1.ReasonControllerNotLeading
	// stateUnknown is the state of a node that was healthy when it was last judged, or that reports and is
	// not Ready.
	stateUnknown = "Unknown"
)

// unled says since when no controller leads, or why not; "" if one does, or if that is not known,
// because the lease was not read.
func unled(lease *coordinationv1.Lease, now time.Time) string {
	if lease == nil {
		return ""
	}
	says, _ := LeaseExpired(lease, now)
	return says
}

// OutdateVolumes adds to each row that no controller leads, if that is so by the lease.
func OutdateVolumes(rows []VolumeRow, lease *coordinationv1.Lease, now time.Time) {
	for i := range rows {
		rows[i].outdate(unled(lease, now))
	}
}

// OutdateNodes is OutdateVolumes for nodes.
func OutdateNodes(rows []NodeRow, lease *coordinationv1.Lease, now time.Time) {
	for i := range rows {
		rows[i].outdate(unled(lease, now))
	}
}

func (r *VolumeRow) outdate(says string) {
	if says != "" {
		r.Reasons = append(r.Reasons, notLeading)
	}
}

func (r *NodeRow) outdate(says string) {
	if says == "" {
		return
	}
	if r.State == string(nodehealth.Healthy) {
		r.State = stateUnknown
	}
	r.Reasons = append(r.Reasons, notLeading)
}

// outdate adds to an overview that no controller leads. The volumes and nodes are not listed as in
// need of attention: all are.
func (o *Overview) outdate(says string) {
	if says == "" {
		return
	}
	o.Leader = fmt.Sprintf("No controller of the driver leads: the lease %s %s. All states may be out of date.", LeaseController, says)
	for i := range o.Volumes {
		o.Volumes[i].outdate(says)
	}
	for i := range o.Zones {
		z := &o.Zones[i]
		z.Unhealthy = z.NodeCount
		for j := range z.Nodes {
			z.Nodes[j].outdate(says)
			z.Nodes[j].Healthy = false
		}
	}
}

// led adds to the findings that no controller leads. A subject that would be healthy is not known to
// be.
func (f Facts) led(findings []Finding) []Finding {
	first := &findings[0]
	if first.ID == apiv1.ReasonNoVolumes || first.ID == notLeading {
		return findings
	}
	leader, ok := f.leader()
	if !ok {
		return findings
	}
	if first.Outcome == cause.Healthy {
		leader.Sentence += " By the records, which may be out of date: " + first.Sentence
	}
	return append(findings, leader)
}
