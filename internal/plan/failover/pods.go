package failover

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Pod is a pod on the node and its volumes.
type Pod struct {
	Pod     *corev1.Pod
	Volumes []PodVolume
}

// PodVolume is a volume of a pod that another node could use as well.
type PodVolume struct {
	// Volume is the name of the AzVolume; "" if it is not this driver's, or not known.
	Volume string
	// Name for people, as in "claim shop/cart".
	Name string
	// ReadOnly says that the pod cannot write to it.
	ReadOnly bool
	// OptedOut says that its claim has the annotation that opts out of failover.
	OptedOut bool
	// Unknown says that its claim or its PersistentVolume was not found.
	Unknown bool
	// Untaken says that the node may use it without a record of this driver's; see the function of that name.
	Untaken bool
}

// HoldReason is why a pod must be left alone.
type HoldReason string

// The reasons.
const (
	// HoldOptOut: the pod or one of its claims says so.
	HoldOptOut HoldReason = "OptedOut"
	// HoldNoOwner: no controller would make the pod anew.
	HoldNoOwner HoldReason = "NoOwner"
	// HoldDaemonSet: its owner would make it anew on the same node.
	HoldDaemonSet HoldReason = "DaemonSet"
	// HoldForeignVolume: it may be writing to a volume that this driver cannot cut off, or not yet.
	HoldForeignVolume HoldReason = "ForeignVolume"
	// HoldUnknownVolume: it is not known which volume it uses.
	HoldUnknownVolume HoldReason = "UnknownVolume"
	// HoldSharedVolume: it uses a volume together with a pod that must be left alone.
	HoldSharedVolume HoldReason = "SharedVolume"
	// HoldMassLoss: so many nodes seem lost at once that the driver fences nothing.
	HoldMassLoss HoldReason = "MassLoss"
)

// OptOutEnds says, for people, why a volume is taken from a node although its claim opts out of failover.
const OptOutEnds = "the annotation " + apiv1.AnnotationFailover + ": " + apiv1.FailoverDisabled + " of its claim keeps the driver from deleting a pod, and from taking the volume from a pod; " +
	"no pod on that node uses the volume any more"

// optOutAdvice ends the message about a pod that opted out.
const optOutAdvice = "; to have its volumes moved, delete it by force (kubectl delete pod --force), after which the driver cuts them off from the node"

// massLossAdvice ends the message about a pod that the guard holds back.
const massLossAdvice = ", so that the fault may be the controller's network and nothing new is fenced; the driver goes on when enough nodes answer again, " +
	"or for each node whose VM is stopped at Azure (az vm stop)"

// KeptPod is a pod that is left alone, and its volumes with it.
type KeptPod struct {
	Pod     *corev1.Pod
	Reason  HoldReason
	Message string
	// Volumes of this driver that it uses and that the node keeps.
	Volumes []string
}

// ours are the names of the pod's AzVolumes.
func (p Pod) ours() []string {
	var names []string
	for _, v := range p.Volumes {
		if v.Volume != "" && !slices.Contains(names, v.Volume) {
			names = append(names, v.Volume)
		}
	}
	return names
}

// hold says why a pod must be left alone for its own sake. down says that the VM is proved down: then nothing runs on it any more.
func (p Pod) hold(down bool) (HoldReason, string) {
	if OptedOut(p.Pod.Annotations) {
		return HoldOptOut, "it has the annotation " + apiv1.AnnotationFailover + ": " + apiv1.FailoverDisabled + optOutAdvice
	}
	for _, v := range p.Volumes {
		if v.OptedOut {
			return HoldOptOut, v.Name + " has the annotation " + apiv1.AnnotationFailover + ": " + apiv1.FailoverDisabled + optOutAdvice
		}
	}
	if down {
		return "", ""
	}
	if p.Pod.DeletionTimestamp == nil { // who is being deleted has no need of an owner
		owner := controllerOf(p.Pod)
		switch owner {
		case "", "Node":
			return HoldNoOwner, "no controller would make it anew"
		case "DaemonSet":
			return HoldDaemonSet, "its DaemonSet would make it anew on the same node"
		}
	}
	for _, v := range p.Volumes {
		switch {
		case v.Untaken:
			return HoldForeignVolume, v.Name + " was not published by this driver, which cannot cut it off before that"
		case v.Volume != "" || v.ReadOnly:
		case v.Unknown:
			return HoldUnknownVolume, v.Name + " was not found"
		default:
			return HoldForeignVolume, v.Name + " is writable and not of this driver, which cannot cut it off"
		}
	}
	return "", ""
}

// OptedOut says that the annotations of a pod or a claim opt out of failover.
func OptedOut(annotations map[string]string) bool {
	return annotations[apiv1.AnnotationFailover] == apiv1.FailoverDisabled
}

func controllerOf(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			return o.Kind
		}
	}
	return ""
}

// optedOut says whether anything on the node opted out.
func (f *decision) optedOut() bool {
	return slices.ContainsFunc(f.in.Pods, func(p Pod) bool {
		reason, _ := p.hold(true)
		return reason == HoldOptOut
	})
}

// judgePods finds the pods that must be left alone. The volumes of such a pod stay with the node, and so do the other pods that use
// them, and their volumes, and so on.
func (f *decision) judgePods() {
	f.leave = make([]HoldReason, len(f.in.Pods))
	messages := make([]string, len(f.in.Pods))
	for i, p := range f.in.Pods {
		if len(p.ours()) == 0 {
			continue
		}
		if f.leave[i], messages[i] = p.hold(f.in.Health.State == nodehealth.Down); f.leave[i] != "" {
			f.keep(p)
		}
	}
	for again := true; again; {
		again = false
		for i, p := range f.in.Pods {
			shared := slices.IndexFunc(p.ours(), func(name string) bool { return f.kept[name] })
			if f.leave[i] != "" || shared < 0 {
				continue
			}
			f.leave[i] = HoldSharedVolume
			messages[i] = fmt.Sprintf("it uses volume %s together with a pod that is left alone", p.ours()[shared])
			f.keep(p)
			again = true
		}
	}
	for i, p := range f.in.Pods {
		switch {
		case f.leave[i] != "" && f.concerned(p):
			f.step.LeftAlone = append(f.step.LeftAlone, KeptPod{Pod: p.Pod, Reason: f.leave[i], Message: messages[i], Volumes: f.keptOf(p)})
		case f.leave[i] == "" && f.in.Health.Guarded() && len(f.undecided(p)) > 0:
			f.step.LeftAlone = append(f.step.LeftAlone, KeptPod{
				Pod: p.Pod, Reason: HoldMassLoss, Message: f.in.Health.HeldBack + massLossAdvice, Volumes: f.undecided(p),
			})
		}
	}
}

// undecided returns the volumes of a pod that the node holds and that no decision was taken about.
func (f *decision) undecided(p Pod) []string {
	return slices.DeleteFunc(p.ours(), func(name string) bool {
		_, held := f.held[name]
		return !held || f.decided[name] || f.proven[name]
	})
}

// keep notes that the volumes of a pod stay with the node, but for those of which the contrary was decided before.
func (f *decision) keep(p Pod) {
	for _, name := range p.ours() {
		if _, held := f.held[name]; held && !f.decided[name] {
			f.kept[name] = true
		}
	}
}

func (f *decision) keptOf(p Pod) []string {
	return slices.DeleteFunc(p.ours(), func(name string) bool { return !f.kept[name] })
}

// concerned says that the failover is about the pod: it uses a volume that is being taken from the node, or the node is lost now.
func (f *decision) concerned(p Pod) bool {
	ours := p.ours()
	return len(ours) > 0 && (f.begins || slices.ContainsFunc(ours, func(name string) bool { return f.decided[name] }))
}

// pods decides which pods are deleted: those whose volumes of this driver are all free.
func (f *decision) pods() {
	for i, p := range f.in.Pods {
		if !f.concerned(p) || f.leave[i] != "" {
			continue
		}
		ours := p.ours()
		if !slices.ContainsFunc(ours, func(name string) bool { return !f.free(name) }) {
			f.step.Delete = append(f.step.Delete, PodDeletion{Pod: p.Pod, Force: true, Volumes: ours})
			continue
		}
		// The node came back before all of the pod's volumes could be taken from it. The pod has lost some
		// for good; its kubelet ends it, and lets go of the others.
		if f.alive && p.Pod.DeletionTimestamp == nil && !slices.ContainsFunc(ours, func(name string) bool { return f.decided[name] && !f.proven[name] }) {
			f.step.Delete = append(f.step.Delete, PodDeletion{Pod: p.Pod, Volumes: ours})
		}
	}
}
