package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

// podModel is a pod of a history with kubelets. It uses one volume.
type podModel struct {
	name string
	v    *volumeModel
	m    *machine
	// deleting and gone are its state in the API server; known says that its kubelet has seen it.
	deleting, gone, known bool
	// since is when a person last acted on it.
	since time.Time
	// beside are the pods of the volume whose processes ran on the node when this one was placed
	// there, although their objects were gone. There are none if a pod with an object used the volume
	// there: the pods of a node may share it, and elsewhere this one would wait for that pod.
	beside []*localPod
}

// target is where the volume is published for the pod.
func (p *podModel) target() string { return "/pods/" + p.name + "/" + p.v.name }

// addPod puts a pod on a node.
func (w *world) addPod(v *volumeModel, m *machine) {
	w.podSerial++
	p := &podModel{
		name:  fmt.Sprintf("%s-pod-%d", v.name, w.podSerial),
		v:     v,
		m:     m,
		since: w.now(),
	}
	shared := slices.ContainsFunc(w.podsOf(v), func(p *podModel) bool { return p.m == m })
	for _, l := range m.kubelet.pods {
		if l.v == v && l.gone && l.runs() && !shared {
			p.beside = append(p.beside, l)
		}
	}
	w.pods = append(w.pods, p)
	yes := true
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: p.name}}
	o.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1",
		Kind:       "ReplicaSet",
		Name:       v.name,
		UID:        types.UID(v.name),
		Controller: &yes,
	}}
	o.Spec.NodeName = m.name
	o.Spec.Volumes = []corev1.Volume{{
		Name:         "data",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.name}},
	}}
	w.note("pod %s is bound to %s", p.name, m.name)
	w.must(w.store.Create(o))
}

// removePod removes a pod from the API server.
func (w *world) removePod(p *podModel) {
	if !p.gone {
		w.must(w.store.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: podNamespace,
			Name:      p.name,
		}}, client.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	w.pods = slices.DeleteFunc(slices.Clone(w.pods), func(other *podModel) bool { return other == p })
}

// endPodModel asks a pod to end.
func (w *world) endPodModel(p *podModel) {
	w.note("pod %s is deleted", p.name)
	p.since = w.now()
	w.must(w.store.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: podNamespace,
		Name:      p.name,
	}}, client.DeleteOptions{}))
}

// podChanged records the state of a pod in the API server. The store is locked.
func (w *world) podChanged(c memapi.Change) {
	of := c.After
	if of == nil {
		of = c.Before
	}
	for _, p := range w.pods {
		if p.name == of.GetName() {
			p.gone = c.After == nil
			p.deleting = p.gone || of.GetDeletionTimestamp() != nil
		}
	}
}

// takesPods reports whether the scheduler would put a pod on the node.
func (w *world) takesPods(m *machine) bool {
	n := w.node(m)
	return n != nil && m.told != corev1.ConditionUnknown && len(n.Spec.Taints) == 0
}

// steersTo reports whether the scheduler would put a pod of a volume on the node, as the driver
// advises it.
func (w *world) steersTo(v *volumeModel, m *machine) bool {
	used := slices.ContainsFunc(w.podsOf(v), func(p *podModel) bool { return p.m == m })
	key := client.ObjectKey{Namespace: namespace, Name: m.name}
	report, _ := w.store.Look((*apiv1.AzDriverNode)(nil), key).(*apiv1.AzDriverNode)
	return w.takesPods(m) && (v.several || !ownership.LeftBehind(report, v.name, used))
}

func (p *localPod) stopped(now time.Time) bool { return p.ending && !p.hung && !p.ends.After(now) }

// runs reports whether the containers run and can write.
func (p *localPod) runs() bool {
	return (p.mount == mounted || p.reconstructed) && !p.stopped(p.m.w.now()) && p.m.live(p.target())
}

// oneProcess holds law 1 on one node: no pod starts beside a process of a pod whose object is gone.
func (w *world) oneProcess(m *machine) {
	if w.edits || m == w.liar || m.kubelet == nil { // a report that was edited, or is a lie, does not show the process
		return
	}
	for _, l := range m.kubelet.pods {
		if l.v.several || !l.runs() {
			continue
		}
		for _, old := range l.beside {
			if slices.Contains(m.kubelet.pods, old) && old.runs() {
				w.broken("law 1: %s and %s, whose object is gone, write %s at once on %s", l.name, old.name, l.v.name, m.name)
			}
		}
	}
}

// podsOf are the pods of a volume that have not ended.
func (w *world) podsOf(v *volumeModel) []*podModel {
	var found []*podModel
	for _, p := range w.pods {
		if p.v == v && !p.gone {
			found = append(found, p)
		}
	}
	return found
}

// local returns a pod as its kubelet has it, or nil.
func (p *podModel) local() *localPod {
	for _, l := range p.m.kubelet.pods {
		if l.podModel == p {
			return l
		}
	}
	return nil
}

// usePods is what users do in a history with kubelets.
func (w *world) usePods() {
	if w.apiDown {
		return
	}
	v, m := pick(w.random, w.volumes), pick(w.random, w.hosts())
	pods := w.podsOf(v)
	staying := slices.DeleteFunc(slices.Clone(pods), func(p *podModel) bool { return p.deleting })
	switch n := w.random.IntN(10); {
	case len(staying) == 0 || n == 0 || n < 4 && v.several && len(staying) < v.shares:
		if w.steersTo(v, m) {
			w.addPod(v, m)
		}
	case n < 8: // a roll-out: the next pod does not wait for the end of the one before, and often comes to the same node
		p := pick(w.random, staying)
		w.endPodModel(p)
		if w.random.IntN(2) == 0 {
			m = p.m
		}
		if w.steersTo(v, m) && w.random.IntN(3) > 0 {
			w.addPod(v, m)
		}
	default:
		p := pick(w.random, pods)
		w.note("a person deletes pod %s by force", p.name)
		zero := int64(0)
		w.must(w.store.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: podNamespace,
			Name:      p.name,
		}}, client.DeleteOptions{GracePeriodSeconds: &zero}))
	}
}

// nextPodOn places the next pod of a volume on a machine that is reachable again, as soon as the
// scheduler allows it: its kubelet may be ending the earlier pod, and believes that the volume is
// staged.
func (w *world) nextPodOn(v *volumeModel, m *machine) {
	if !w.kubelets || w.random.IntN(2) == 0 {
		return
	}
	for end := w.now().Add(3 * time.Second); w.violation == "" && w.now().Before(end); w.step() {
		staying := slices.ContainsFunc(w.podsOf(v), func(p *podModel) bool { return !p.deleting })
		if !w.apiDown && w.steersTo(v, m) && !staying {
			w.addPod(v, m)
			return
		}
	}
}

// afterAWhile is when a person acts on a pod that makes no progress.
const afterAWhile = 20 * time.Second

// placePods creates and deletes pods until the wanted ones run, as a controller of pods, a
// scheduler and an attentive person do, and says what is missing.
func (c *kubernetes) placePods(v *volumeModel) string {
	w := c.w
	wants := v.wants
	if !v.several {
		wants = nil
		if v.want != "" {
			wants = []string{v.want}
		}
	}
	for _, p := range w.podsOf(v) {
		if why := c.tend(p, slices.Contains(wants, p.m.name)); why != "" {
			return why
		}
	}
	for _, name := range wants {
		if why := c.podRuns(v, w.machine(name)); why != "" {
			return why
		}
	}
	for _, m := range w.machines {
		if a := w.attaching[shareOf(v, m)]; a != nil && !slices.Contains(wants, m.name) {
			return a.state.String() + " at " + m.name
		}
	}
	if object := w.record(v); len(wants) == 0 && !v.several && object.Status.Primary != nil &&
		object.Status.Primary.State != apiv1.OwnershipReleased {
		return "published to " + object.Status.Primary.NodeName
	}
	return ""
}

// tend deletes a pod that is not wanted, or that has had a dead mount for a while, and by force one
// of a kubelet that does not end it.
func (c *kubernetes) tend(p *podModel, wanted bool) string {
	l := p.local()
	dead := l != nil && l.mount == mounted && !p.m.live(p.target())
	waited := c.w.now().Sub(p.since) > afterAWhile
	switch {
	case !p.deleting && wanted && c.w.now().Sub(p.since) > 3*afterAWhile && c.w.personDoes(endPods, p.v, p.m):
		c.w.endPodModel(p)
	case !p.deleting && (!wanted || dead && waited):
		c.w.endPodModel(p)
	case p.deleting && waited && c.w.personDoes(forcePods, p.v, p.m):
		c.w.note("a person deletes pod %s by force", p.name)
		c.w.removePod(p)
	case !p.deleting && wanted:
		return ""
	}
	if p.deleting && wanted {
		return "" // its successor comes at once, unless a person waits with it
	}
	return p.name + " is to end"
}

// podRuns creates a pod on a node, and says why it does not run yet.
func (c *kubernetes) podRuns(v *volumeModel, m *machine) string {
	for _, p := range c.w.podsOf(v) {
		if p.m != m || p.deleting {
			continue
		}
		switch l := p.local(); {
		case c.w.beingDeleted(v, m):
			return "the attachment to " + m.name + " is being deleted, and " + p.name + " is there"
		case l == nil || l.mount != mounted:
			return p.name + " waits for its volume"
		case !m.live(p.target()):
			return p.name + " has a dead mount"
		case !m.writes(v.name) || c.w.entry(m, v.name) != apiv1.PhaseStaged:
			return v.name + " is not staged on " + m.name
		}
		return ""
	}
	if c.w.personDoes(endPods, v, m) {
		return "being unstaged from " + m.name
	}
	if !c.w.steersTo(v, m) {
		return m.name + " takes no pods"
	}
	c.w.addPod(v, m)
	return "a pod is made on " + m.name
}
