// Package whatif says what would happen to the pods of nodes that are lost or drained: where each
// would go, whether it would find a replica there, how long that takes, and what would keep it. It is
// pure: facts in, a report out.
//
// It asks the driver's own decision functions about the state that the loss would leave: lostnode and
// nodehealth.MassGuard for the failover, placement.ChoicesOf for the rules of pods, and the filter and
// the scores of the scheduler extender. Of kube-scheduler's own rules that the driver does not know it
// has one, whether the requests of a pod fit on a node. Scores for resources and images are not
// known, so several nodes can be equally good.
package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Facts are all objects of a cluster that decide where its pods go.
type Facts struct {
	// Now is the API server's time.
	Now time.Time
	// Subject is what is asked about, a node or a zone, and Gone are its nodes.
	Subject explain.Subject
	Gone    []string
	// Drained asks for a drain of the nodes, and not for their loss.
	Drained bool
	// Unsteered says that neither the webhook nor the extender tells kube-scheduler of replicas.
	Unsteered  bool
	DriverName string
	// Controller is the controller plug-in's Deployment, nil if it was not read.
	Controller  *appsv1.Deployment
	Nodes       []*corev1.Node
	DriverNodes []*apiv1.AzDriverNode
	// Pods of all namespaces that have not ended.
	Pods              []*corev1.Pod
	Claims            []*corev1.PersistentVolumeClaim
	PersistentVolumes []*corev1.PersistentVolume
	Volumes           []*apiv1.AzVolume
	Attachments       []*apiv1.AzVolumeAttachment
	Namespaces        map[string]labels.Set
	// Unread is what could not be read and does not decide.
	Unread []explain.Unread
}

// KindZone is the kind of a subject that is all nodes of a zone.
const KindZone explain.Kind = "Zone"

// Figures are the times that are expected, by docs/explanation/performance.md: of a pod whose disks
// are attached to its next node, of one from whose disks Azure has to detach the lost node first, and
// of one whose disks Azure has to attach.
type Figures struct{ Warm, ByDetach, Cold time.Duration }

// The figures: from the loss of a node until a pod writes elsewhere, and for how long a pod cannot
// write in a planned move.
var (
	AfterLoss = Figures{Warm: 5 * time.Second, ByDetach: 20 * time.Second, Cold: 30 * time.Second}
	InADrain  = Figures{Warm: 2 * time.Second, ByDetach: 2 * time.Second, Cold: 30 * time.Second}
)

// The results for a pod.
const (
	Warm  = "Warm"
	Cold  = "Cold"
	Stuck = "Stuck"
)

// Row is the answer about one pod.
type Row struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// From is the node on which the pod is, and To the one where it would go; "" if it is stuck.
	From string `json:"fromNode"`
	To   string `json:"toNode,omitempty"`
	// Or are nodes that are as good, as far as the driver's scores say.
	Or []string `json:"alternativeNodes,omitempty"`
	// Result is Warm if every volume of the pod is attached at To, Cold if one has to be attached
	// there, and Stuck if the pod does not run anywhere without an action.
	Result string `json:"result"`
	// Seconds until it writes again; 0 if it is stuck.
	Seconds int `json:"downtimeSeconds,omitempty"`
	// Cause is that of explain's registry for a pod that is stuck.
	Cause string `json:"reason,omitempty"`
	Why   string `json:"message,omitempty"`
	Next  string `json:"remediation,omitempty"`
}

// Report is the answer.
type Report struct {
	explain.Document
	Subject explain.Subject `json:"subject"`
	// Assumed is what happens to the nodes of the subject.
	Assumed Assumption    `json:"assumption"`
	Nodes   []string      `json:"nodes"`
	Outcome cause.Outcome `json:"outcome"`
	// Note is what else decides about the answer, as a sentence.
	Note string `json:"note,omitempty"`
	Pods []Row  `json:"pods"`
}

// Assumption is what is assumed of nodes.
type Assumption string

// The assumptions.
const (
	Lost    Assumption = "Lost"
	Drained Assumption = "Drained"
)

// Answer says what would happen to each pod with a volume of the driver on the nodes.
func Answer(f Facts) Report {
	w := newWorld(f)
	report := Report{
		Document: explain.NewDocument("WhatIfReport", f.Now, f.Unread),
		Subject:  f.Subject,
		Assumed:  Lost,
		Nodes:    f.Gone,
		Outcome:  cause.Healthy,
		Pods:     []Row{},
	}
	if f.Drained {
		report.Assumed = Drained
	}
	if f.Unsteered {
		report.Note = "Neither the webhook nor the extender is deployed, so kube-scheduler does not know of replicas."
	}
	var moving []*corev1.Pod
	for _, name := range f.Gone {
		rows, pods := w.leave(name)
		report.Pods, moving = append(report.Pods, rows...), append(moving, pods...)
	}
	if kinds := operated(moving); len(kinds) > 0 && !f.Drained {
		report.Note = strings.TrimSpace(report.Note + fmt.Sprintf(" The pods of %s are created again by an operator: if its only pod is on "+
			"a lost node, they wait until Kubernetes has moved that, which takes minutes.", strings.Join(kinds, ", ")))
	}
	w.remove(moving)
	// kube-scheduler takes pods of a higher priority first, and the others in the order of their
	// creation, which is not known.
	slices.SortFunc(moving, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range moving {
		report.Pods = append(report.Pods, w.place(p))
	}
	slices.SortFunc(report.Pods, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	for _, row := range report.Pods {
		report.Outcome = cause.Worse(report.Outcome, outcomes[row.Result])
	}
	return report
}

// operated returns the kinds of the custom resources whose controllers create some pods again. Those of
// Kubernetes itself run in the control plane.
func operated(pods []*corev1.Pod) []string {
	var kinds []string
	for _, p := range pods {
		owner := metav1.GetControllerOf(p)
		if owner == nil {
			continue
		}
		group, _, found := strings.Cut(owner.APIVersion, "/")
		if kind := owner.Kind + "." + group; found && group != "apps" && group != "batch" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

var outcomes = map[string]cause.Outcome{
	Warm: cause.Healthy, Cold: cause.Waits, Stuck: cause.NeedsAction,
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// judgement of the nodes that are lost. The controller's guard may hold their failover back.
func (f Facts) judgement() nodehealth.Judgement {
	j := nodehealth.Judgement{State: nodehealth.Lost, Since: f.Now, SilentFrom: f.Now, Evidence: "assumed"}
	value, known := explain.Setting(f.Controller, "failover-mass-loss-threshold")
	threshold, err := strconv.Atoi(value)
	if !known || err != nil {
		return j
	}
	lost, total := len(f.Gone), len(f.DriverNodes)
	for _, d := range f.DriverNodes {
		state := nodehealth.PublishedJudgement(d).State
		word := nodehealth.LastWord{FailedOver: nodehealth.FailedOver(f.node(d.Name), f.attachmentsOf(d.Name))}
		switch {
		case slices.Contains(f.Gone, d.Name):
		case word.Said(state):
			total--
		case state == nodehealth.Lost:
			lost++
		}
	}
	j.MassLoss, j.HeldBack = nodehealth.MassGuard(lost, total, threshold)
	return j
}

func (f Facts) node(name string) *corev1.Node {
	i := slices.IndexFunc(f.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return f.Nodes[i]
}

func (f Facts) attachmentsOf(node string) []*apiv1.AzVolumeAttachment {
	var found []*apiv1.AzVolumeAttachment
	for _, a := range f.Attachments {
		if a.Spec.NodeName == node {
			found = append(found, a)
		}
	}
	return found
}

// gone returns the Node and the AzDriverNode as they would be.
func (f Facts) gone(n *corev1.Node, d *apiv1.AzDriverNode) (*corev1.Node, *apiv1.AzDriverNode) {
	if n != nil {
		n = n.DeepCopy()
		taint := corev1.Taint{Key: apiv1.TaintNodeLost, Effect: corev1.TaintEffectNoSchedule}
		if f.Drained {
			n.Spec.Unschedulable = true
			taint.Key = corev1.TaintNodeUnschedulable
		}
		n.Spec.Taints = append(n.Spec.Taints, taint)
	}
	if d != nil && !f.Drained {
		d = d.DeepCopy()
		meta.SetStatusCondition(&d.Status.Conditions, nodehealth.Condition(nodehealth.Judgement{
			State: nodehealth.Lost, Evidence: "assumed",
		}))
	}
	return n, d
}
