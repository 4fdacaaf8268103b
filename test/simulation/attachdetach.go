package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	csicontroller "github.com/azuredisk-csi/azuredisk/internal/controller/csi"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// share is a volume at a machine.
type share struct {
	v *volumeModel
	m *machine
}

func shareOf(v *volumeModel, m *machine) share { return share{v, m} }

type attachState int

const (
	attachingState attachState = iota
	attachedState
	detachingState
)

// attaching is a VolumeAttachment: what Kubernetes' attach/detach controller and csi-attacher know
// of a volume at a node.
type attaching struct {
	state attachState
	call  *call
	next  time.Time
	// unwanted is since when no pod there wants it.
	unwanted time.Time
}

func (a *attaching) is(s attachState) bool { return a != nil && a.state == s }

// forceAfter is Kubernetes' maxWaitForUnmountDuration, shortened from six minutes: after it a
// volume is unpublished from a node that is not ready although the node says that the volume is in
// use.
const forceAfter = 30 * time.Second

// attachDetach are what Kubernetes' attach/detach controller and csi-attacher could do now.
func (w *world) attachDetach() []func() {
	if !w.kubelets || w.byPods || w.apiDown {
		return nil
	}
	var choices []func()
	now := w.now()
	for _, v := range w.volumes {
		for _, m := range w.machines {
			wanted := slices.ContainsFunc(w.pods, func(p *podModel) bool { return p.v == v && p.m == m && !p.gone })
			a := w.attaching[shareOf(v, m)]
			if a == nil {
				if !wanted || !v.several && w.attachedElsewhere(v, m) {
					continue
				}
				choices = append(choices, func() { w.attaching[shareOf(v, m)] = &attaching{state: attachingState} })
				continue
			}
			if wanted {
				a.unwanted = time.Time{}
			} else if a.unwanted.IsZero() {
				a.unwanted = now
			}
			if do := w.attachStep(v, m, a, wanted); do != nil {
				choices = append(choices, do)
			}
		}
	}
	return choices
}

// attachedElsewhere says that, for Kubernetes, a volume for one node at a time is attached to
// another node.
func (w *world) attachedElsewhere(v *volumeModel, m *machine) bool {
	return slices.ContainsFunc(w.machines,
		func(other *machine) bool { return other != m && w.attaching[shareOf(v, other)] != nil })
}

func (w *world) attachStep(v *volumeModel, m *machine, a *attaching, wanted bool) func() {
	over := a.call == nil || a.call.done
	succeeded := a.call != nil && a.call.done && a.call.err == nil
	again := over && !a.next.After(w.now())
	begin := func(do func(*process) *call) func() {
		p := w.alive()
		if p == nil {
			return nil
		}
		return func() {
			a.next = w.now().Add(time.Second)
			a.call = do(p)
		}
	}
	switch a.state {
	case attachingState:
		switch {
		case succeeded:
			return func() { a.state, a.call = attachedState, nil }
		case again && wanted:
			return begin(func(p *process) *call { return w.publish(p, v, m.name, callTimeout) })
		case over && !wanted:
			return func() { a.state, a.call = detachingState, nil }
		}
	case attachedState:
		if wanted && !w.listed(v, m) {
			// csi-attacher compares its VolumeAttachments with the driver's ListVolumes, and
			// publishes again where they differ.
			return func() { a.state, a.call = attachingState, nil }
		}
		if !wanted && (!w.inUse(m, v) || w.now().Sub(a.unwanted) > forceAfter && m.told == corev1.ConditionUnknown ||
			w.outOfService(m)) {
			return func() { a.state = detachingState }
		}
	case detachingState:
		switch {
		case succeeded:
			return func() { delete(w.attaching, shareOf(v, m)) }
		case again:
			return begin(func(p *process) *call { return w.unpublish(p, v, m.name, callTimeout) })
		}
	}
	return nil
}

// listed reports whether the driver lists the node among those that the volume is published to.
func (w *world) listed(v *volumeModel, m *machine) bool {
	o := w.volume(v.name)
	if o == nil {
		return false
	}
	return slices.Contains(ownership.PublishedTo(o, w.attachments(v.name),
		func(node string) bool { return w.machine(node).told == corev1.ConditionTrue }), m.name)
}

func (w *world) outOfService(m *machine) bool {
	n := w.node(m)
	return n != nil && slices.ContainsFunc(n.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

func (s attachState) String() string {
	return [...]string{"attaching", "attached", "detaching"}[s]
}

// publisher names the node of each call, because the driver makes the calls for a volume of several
// nodes in parallel.
type publisher struct{ *csicontroller.Server }

// ControllerPublishVolume implements attachdetach.Publisher.
func (p publisher) ControllerPublishVolume(ctx context.Context,
	r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return p.Server.ControllerPublishVolume(withActor(ctx, actorOf(ctx)+r.GetNodeId()), r)
}

// ControllerUnpublishVolume implements attachdetach.Publisher.
func (p publisher) ControllerUnpublishVolume(ctx context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return p.Server.ControllerUnpublishVolume(withActor(ctx, actorOf(ctx)+r.GetNodeId()), r)
}
