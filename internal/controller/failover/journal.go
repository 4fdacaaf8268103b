package failover

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// journal reports what the failover does: in the log, as events and as metrics. Its memory makes
// times exact and prevents duplicate reports; nothing else depends on it.
type journal struct {
	Options
	metrics *metrics

	mu    sync.Mutex
	nodes map[string]*entry
}

// entry is the journal's memory of a node.
type entry struct {
	// decided is when this process last decided to take a volume from the node because it was
	// silent.
	decided time.Time
	volumes map[ownedVolume]*mark
	said    map[string]bool
}

// ownedVolume is one time that a node owned a volume.
type ownedVolume struct {
	volume string
	epoch  int64
	uid    string // of the attachment, where the epoch is always the same
}

// mark holds when the phases of the failover of a volume ended.
type mark struct {
	silentFrom, decided, proven time.Time
	unblocked                   bool
}

func newJournal(options Options) (*journal, error) {
	m, err := newMetrics(options.Metrics)
	if err != nil {
		return nil, err
	}
	return &journal{
		Options: options,
		metrics: m,
		nodes:   map[string]*entry{},
	}, nil
}

func ownedOf(v lostnode.Volume) ownedVolume {
	h := ownedVolume{volume: v.Volume.Name, epoch: v.Epoch()}
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		h.uid = string(v.Attachment.UID)
	}
	return h
}

func (j *journal) entry(node string) *entry {
	if j.nodes[node] == nil {
		j.nodes[node] = &entry{volumes: map[ownedVolume]*mark{}, said: map[string]bool{}}
	}
	return j.nodes[node]
}

// markOf returns the mark of a volume. If another process made the decision, the mark is made from
// the record.
func (j *journal) markOf(o observed, v lostnode.Volume) *mark {
	e, h := j.entry(o.NodeName), ownedOf(v)
	if e.volumes[h] == nil {
		m := &mark{decided: decidedAt(v, j.Clock.Now())}
		if d := o.DriverNode; d != nil && d.Status.HeartbeatTime != nil && d.Status.HeartbeatTime.Time.Before(m.decided) {
			m.silentFrom = d.Status.HeartbeatTime.Time
		}
		if p := v.Proof(); p != nil {
			m.proven = p.ProvenTime.Time
			j.provenOnce(m, p.Type)
		}
		e.volumes[h] = m
	}
	return e.volumes[h]
}

func decidedAt(v lostnode.Volume, otherwise time.Time) time.Time {
	var since *metav1.Time
	if v.Volume.Spec.Access == apiv1.AccessMultiNode {
		since = v.Attachment.DeletionTimestamp
	} else {
		since = v.Volume.Status.Primary.LastTransitionTime
	}
	if since == nil {
		return otherwise
	}
	return since.Time
}

func (j *journal) provenOnce(m *mark, kind apiv1.ProofType) {
	j.metrics.fences.WithLabelValues(string(kind)).Inc()
	j.metrics.phases.WithLabelValues(phaseFence).Observe(max(m.proven.Sub(m.decided), 0).Seconds())
}

// look records what was observed: proofs, pods that are left alone, and volumes that Kubernetes has
// unpublished.
func (j *journal) look(ctx context.Context, o observed, step lostnode.Step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, v := range step.Waiting {
		j.markOf(o, v)
	}
	for _, v := range step.Proven {
		m := j.markOf(o, v)
		if m.proven.IsZero() {
			m.proven = j.Clock.Now()
			j.provenOnce(m, v.Proof().Type)
		}
		if j.once(o, "proven "+v.Volume.Name+v.Proof().ProvenTime.String()) {
			j.say(ctx, o, v, apiv1.ReasonFailoverProven,
				fmt.Sprintf("proof %s that node %s can no longer write: %s", v.Proof().Type, o.NodeName, v.Proof().Message))
		}
	}
	for _, p := range step.LeftAlone {
		j.leftAlone(ctx, o, p)
	}
	j.falseAlarm(ctx, o)
	j.released(ctx, o)
	if o.Health.State == nodehealth.Healthy && !step.Active {
		delete(j.nodes, o.NodeName)
	}
}

// once reports whether something is reported about a node for the first time.
func (j *journal) once(o observed, what string) bool {
	e := j.entry(o.NodeName)
	if e.said[what] {
		return false
	}
	e.said[what] = true
	return true
}

func (j *journal) leftAlone(ctx context.Context, o observed, p lostnode.LeftPod) {
	if !j.once(o, "left alone "+string(p.Pod.UID)+p.Reason) {
		return
	}
	j.metrics.heldBack.WithLabelValues(p.Reason).Inc()
	ctrl.LoggerFrom(ctx).Info("pod on lost node is left alone", "pod", p.Pod.Namespace+"/"+p.Pod.Name, "node", o.NodeName,
		"volumes", p.Volumes,
		"reason", p.Reason, "message", p.Message)
	message := fmt.Sprintf("left alone on lost node %s: %s", o.NodeName, p.Message)
	j.event(p.Pod, corev1.EventTypeWarning, apiv1.ReasonFailoverHeldBack, message)
	for _, volume := range p.Volumes {
		if claim := o.claims[volume]; claim != nil {
			j.event(claim, corev1.EventTypeWarning, apiv1.ReasonFailoverHeldBack,
				fmt.Sprintf("remains with pod %s, which is %s", p.Pod.Name, message))
		}
	}
}

// soonBack is how soon after the decision a sign of life shows that the node was alive all the
// time: a machine that lost its power is not back by then.
const soonBack = time.Minute

// falseAlarm reports a node that was alive when a volume was taken from it.
func (j *journal) falseAlarm(ctx context.Context, o observed) {
	e := j.nodes[o.NodeName]
	if e == nil || e.decided.IsZero() || o.Health.State != nodehealth.Healthy {
		return
	}
	after := j.Clock.Since(e.decided)
	e.decided = time.Time{}
	if after > soonBack {
		return
	}
	j.metrics.falseAlarms.Inc()
	ctrl.LoggerFrom(ctx).Info("false alarm", "node", o.NodeName, "after", after.String(),
		"reason", apiv1.ReasonFailoverFalseAlarm)
	j.onNode(o, corev1.EventTypeWarning, apiv1.ReasonFailoverFalseAlarm, fmt.Sprintf(
		"the node was lost, and is alive %s after a volume was taken from it; controller.failover.patience decides for how long it may be silent",
		after.Round(time.Second)))
}

// released ends the failover of volumes that the node does not hold any more.
func (j *journal) released(ctx context.Context, o observed) {
	if j.nodes[o.NodeName] == nil {
		return
	}
	held := map[ownedVolume]bool{}
	for _, v := range o.Volumes {
		held[ownedOf(v)] = true
	}
	for h, m := range j.nodes[o.NodeName].volumes {
		if held[h] {
			continue
		}
		if !m.unblocked {
			j.ended(m, resultReleased)
		}
		ctrl.LoggerFrom(ctx).Info("volume was unpublished from lost node", "volume", h.volume, "node", o.NodeName, "epoch",
			h.epoch)
		delete(j.nodes[o.NodeName].volumes, h)
	}
}

func (j *journal) ended(m *mark, result string) {
	m.unblocked = true
	now := j.Clock.Now()
	j.metrics.failovers.WithLabelValues(result).Inc()
	if !m.proven.IsZero() {
		j.metrics.phases.WithLabelValues(phaseUnblock).Observe(max(now.Sub(m.proven), 0).Seconds())
	}
	begun := m.silentFrom
	if begun.IsZero() {
		begun = m.decided
	}
	j.metrics.durations.Observe(max(now.Sub(begun), 0).Seconds())
}

// decided reports the decision to fence the node from a volume.
func (j *journal) decided(ctx context.Context, o observed, v lostnode.Volume) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := &mark{decided: j.Clock.Now(), silentFrom: o.Health.SilentFrom}
	e := j.entry(o.NodeName)
	e.volumes[ownedOf(v)] = m
	if o.Health.State == nodehealth.Lost { // what Azure says of a VM that is down is no alarm
		e.decided = m.decided
	}
	j.metrics.phases.WithLabelValues(phaseDetect).Observe(max(m.decided.Sub(m.silentFrom), 0).Seconds())
	message := fmt.Sprintf("node %s is lost and the volume is taken from it: %s", o.NodeName, o.Health.Evidence)
	if claim := o.claims[v.Volume.Name]; claim != nil && annotation.Failover.Switched(claim.Annotations) != "" {
		message += "; " + lostnode.OptOutEnds
	}
	j.say(ctx, o, v, apiv1.ReasonFailoverStarted, message)
	for _, p := range o.Pods {
		for _, used := range p.Volumes {
			if used.Volume == v.Volume.Name {
				j.event(p.Pod, corev1.EventTypeWarning, apiv1.ReasonFailoverStarted, used.Name+": "+message)
			}
		}
	}
}

// podDeleted reports that a pod was deleted.
func (j *journal) podDeleted(ctx context.Context, o observed, d lostnode.PodDeletion) {
	j.metrics.podsDeleted.Inc()
	name := d.Pod.Namespace + "/" + d.Pod.Name
	ctrl.LoggerFrom(ctx).Info("pod deleted", "pod", name, "node", o.NodeName, "volumes", d.Volumes, "forced", d.Force, "reason",
		apiv1.ReasonFailoverPodDeleted)
	message := fmt.Sprintf("node %s was lost and is fenced from the pod's volumes (%s)", o.NodeName,
		strings.Join(d.Volumes, ", "))
	j.event(d.Pod, corev1.EventTypeWarning, apiv1.ReasonFailoverPodDeleted, message)
	for _, volume := range d.Volumes {
		if claim := o.claims[volume]; claim != nil {
			j.event(claim, corev1.EventTypeNormal, apiv1.ReasonFailoverPodDeleted,
				"pod "+d.Pod.Name+" on lost node "+o.NodeName+" was deleted")
		}
	}
	j.onNode(o, corev1.EventTypeNormal, apiv1.ReasonFailoverPodDeleted, "pod "+name+": "+message)
}

// unserved reports that a pod of the driver was deleted.
func (j *journal) unserved(ctx context.Context, o observed, pod *corev1.Pod) {
	name := pod.Namespace + "/" + pod.Name
	ctrl.LoggerFrom(ctx).Info("pod of the driver deleted", "pod", name, "node", o.NodeName, "reason",
		apiv1.ReasonFailoverPodDeleted)
	j.onNode(o, corev1.EventTypeNormal, apiv1.ReasonFailoverPodDeleted,
		"pod "+name+": the node is lost or unresponsive, and the pod advised kube-scheduler")
}

// pruned reports that Kubernetes was informed that the node no longer uses a volume.
func (j *journal) pruned(ctx context.Context, o observed, v lostnode.Volume) {
	j.say(ctx, o, v, apiv1.ReasonFailoverPruned, "removed from the volumesInUse of lost node "+o.NodeName)
}

// unblocked reports that nothing on the node prevents the unpublish of the volume any more.
func (j *journal) unblocked(ctx context.Context, o observed, v lostnode.Volume) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.markOf(o, v); !m.unblocked {
		j.ended(m, resultUnblocked)
		j.say(ctx, o, v, apiv1.ReasonFailoverUnblocked,
			"no pod on lost node "+o.NodeName+" uses it any more; Kubernetes can publish it elsewhere")
	}
}

// tainted reports that the Node's taints were changed.
func (j *journal) tainted(ctx context.Context, o observed, step lostnode.Step) {
	ctrl.LoggerFrom(ctx).Info("taints of node changed", "node", o.NodeName, "quarantine", string(step.Quarantine), "unresponsive",
		string(step.Unresponsive), "outOfService", string(step.OutOfService))
	if step.Quarantine == lostnode.TaintAdd {
		j.onNode(o, corev1.EventTypeWarning, apiv1.ReasonNodeQuarantined,
			"volumes are taken from the node; no new pods until it is back: "+o.Health.Evidence)
	}
	if step.Unresponsive == lostnode.TaintAdd {
		message := fmt.Sprintf("the node has not answered a request to fence another node within %s; no new pods until it gives a sign of life", fencing.AnswerTimeout)
		j.onNode(o, corev1.EventTypeWarning, apiv1.ReasonNodeUnresponsive, message)
	}
	if step.OutOfService == lostnode.TaintAdd {
		j.onNode(o, corev1.EventTypeWarning, apiv1.ReasonNodeOutOfService, "Azure says that the VM is down: "+o.Health.Evidence)
	}
	if step.Quarantine == lostnode.TaintRemove || step.Unresponsive == lostnode.TaintRemove ||
		step.OutOfService == lostnode.TaintRemove {
		j.onNode(o, corev1.EventTypeNormal, apiv1.ReasonNodeBack,
			"the node is Ready and gives signs of life; the driver's taints were removed")
	}
}

// refused reports the writes that the cluster refuses, each once while the failover lasts.
func (j *journal) refused(ctx context.Context, o observed, refused []error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, err := range refused {
		j.metrics.refused.Inc()
		if j.once(o, "refused "+err.Error()) {
			ctrl.LoggerFrom(ctx).Error(err, "the cluster refuses a write", "node", o.NodeName, "reason",
				apiv1.ReasonWriteRefused)
			j.onNode(o, corev1.EventTypeWarning, apiv1.ReasonWriteRefused,
				"the cluster refuses a write of the driver, which tries again and goes on with what needs no such write: "+
					err.Error())
		}
	}
}

// say reports something about a volume: in the log, and as event of volume, PersistentVolumeClaim
// and Node.
func (j *journal) say(ctx context.Context, o observed, v lostnode.Volume, reason, message string) {
	ctrl.LoggerFrom(ctx).Info("failover", "volume", v.Volume.Name, "node", o.NodeName, "epoch", v.Epoch(), "reason", reason,
		"message", message)
	j.event(v.Volume, corev1.EventTypeNormal, reason, message)
	if claim := o.claims[v.Volume.Name]; claim != nil {
		j.event(claim, corev1.EventTypeNormal, reason, message)
	}
	j.onNode(o, corev1.EventTypeNormal, reason, "volume "+v.Volume.Name+": "+message)
}

// onNode reports something about the Node, under the name that the kubelet uses for its own events
// too.
func (j *journal) onNode(o observed, kind, reason, message string) {
	node := o.Node
	if node == nil {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.NodeName}}
	}
	j.event(node, kind, reason, message)
}

func (j *journal) event(of runtime.Object, kind, reason, message string) {
	j.Events.Eventf(of, nil, kind, reason, reason, "%s", message)
}
