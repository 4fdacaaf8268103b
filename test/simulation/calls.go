package simulation

import (
	"cmp"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// kubernetes does what Kubernetes does with the driver, one call for each volume and node at a
// time, until it succeeds.
type kubernetes struct {
	w     *world
	calls map[string]*call
	next  map[string]time.Time
}

// over reports whether no call of that key is in progress and the next one is due.
func (c *kubernetes) over(key string) bool {
	if last := c.calls[key]; last != nil && !last.done {
		return false
	}
	return !c.next[key].After(c.w.now())
}

func (c *kubernetes) do(key string, begin func() *call) {
	if !c.over(key) {
		return
	}
	c.next[key] = c.w.now().Add(500 * time.Millisecond)
	c.calls[key] = begin()
}

const callTimeout = 15 * time.Second

// place publishes each volume where it is wanted, and says what is missing.
func (c *kubernetes) place() string {
	var missing []string
	for _, v := range c.w.volumes {
		if why := c.placeVolume(v); why != "" {
			missing = append(missing, v.name+": "+why)
		}
	}
	for _, last := range c.w.calls {
		if !last.done {
			missing = append(missing, "under way: "+last.what)
		}
	}
	if len(missing) == 0 {
		c.w.calls = nil
	}
	return strings.Join(missing, "; ")
}

func (c *kubernetes) placeVolume(v *volumeModel) string {
	c.intervene(v)
	switch {
	case c.w.kubelets:
		return c.placePods(v)
	case c.w.sharedDiskLargerThanRecorded(v, nil) || v.want != "" && c.w.reservedAndMounted(v, c.w.machine(v.want)):
		// The person ends the pods until the situation is over.
		want, wants := v.want, v.wants
		v.want, v.wants = "", nil
		defer func() { v.want, v.wants = want, wants }()
		return cmp.Or(c.placeCalls(v), "a person waits until the volume is unstaged, or its size is recorded")
	}
	return c.placeCalls(v)
}

// placeCalls makes the calls of a history without kubelets for a volume.
func (c *kubernetes) placeCalls(v *volumeModel) string {
	if v.several {
		return c.placeSeveral(v)
	}
	if why := c.takeFromAll(v); why != "" || v.want == "" {
		return why
	}
	m, key := c.w.machine(v.want), v.name+" on "+v.want
	object := c.w.record(v)
	switch {
	case c.w.byPods && ownership.FenceDecided(object, v.want):
		return "being fenced on " + v.want // whose taint keeps new pods away
	case c.w.byPods && !c.w.podThere(m, v):
		c.w.usePod(m, v)
		return "the pod is made on " + v.want
	case c.w.byPods && (!c.isPrimary(object, v.want) || object.Status.Primary.State != apiv1.OwnershipHeld):
		return "not published to " + v.want
	case c.isPrimary(object, v.want) && object.Status.Primary.State == apiv1.OwnershipReleasing:
		c.do(key, func() *call { return c.w.unpublish(c.w.alive(), v, v.want, callTimeout) })
		return "being taken from " + v.want
	case object.Status.Primary == nil || object.Status.Primary.NodeName != v.want ||
		object.Status.Primary.State != apiv1.OwnershipHeld || !v.published[v.want+" ok"] && !c.w.byPods:
		c.do(key, func() *call { return c.w.publish(c.w.alive(), v, v.want, callTimeout) })
		if last := c.calls[key]; last != nil && last.done && last.err == nil && strings.HasPrefix(last.what, "Publish") {
			v.published[v.want+" ok"] = true
		}
		return "not published to " + v.want
	}
	return c.stage(v, m)
}

// stage stages a volume on the node to which it is published.
func (c *kubernetes) stage(v *volumeModel, m *machine) string {
	if m.writes(v.name) && c.w.entry(m, v.name) == apiv1.PhaseStaged {
		return ""
	}
	c.w.usePod(m, v)
	c.do(v.name+" on "+m.name, func() *call { return c.w.stage(m, v, callTimeout) })
	return "not staged on " + m.name
}

func (c *kubernetes) takeFromAll(v *volumeModel) string {
	for _, m := range c.w.machines {
		if why := c.takeFrom(v, m); why != "" {
			return why
		}
	}
	return ""
}

// takeFrom unpublishes a volume from a node where it is not wanted, or where it cannot be used any
// more.
func (c *kubernetes) takeFrom(v *volumeModel, m *machine) string {
	key := v.name + " on " + m.name
	mounted := m.mounted(v.name)
	object := c.w.record(v)
	leaving := c.isPrimary(object, m.name) && object.Status.Primary.State == apiv1.OwnershipReleasing || c.w.beingDeleted(v, m)
	if v.want == m.name && !leaving {
		return ""
	}
	// The pod is gone, or will be as soon as the failover has deleted it.
	if m.on && (mounted || c.w.entry(m, v.name) != "") {
		c.do(key, func() *call { return c.w.unstage(m, v, callTimeout) })
		return "staged on " + m.name
	}
	if v.want == m.name && !c.w.beingDeleted(v, m) {
		return ""
	}
	delete(v.published, m.name+" ok")
	c.w.endPod(m, v)
	switch {
	case c.w.byPods && c.isPrimary(object, m.name):
		return "published to " + m.name
	case c.w.byPods:
		return ""
	case !m.on && c.isPrimary(object, m.name) && object.Status.Primary.Cause != apiv1.CauseUnpublished && c.w.inUse(m, v):
		// Once Kubernetes has begun to unpublish, it goes on.
		return "in use on " + m.name + ", which is dead"
	}
	if v.published[m.name] || c.isPrimary(object, m.name) {
		last := c.calls[key]
		if last != nil && last.done && last.err == nil && last.what == "Unpublish "+v.name+" "+m.name {
			delete(v.published, m.name)
		}
		if v.published[m.name] || c.isPrimary(object, m.name) {
			c.do(key, func() *call { return c.w.unpublish(c.w.alive(), v, m.name, callTimeout) })
			return "published to " + m.name
		}
	}
	return ""
}

func (c *kubernetes) isPrimary(v *apiv1.AzVolume, node string) bool {
	p := v.Status.Primary
	return p != nil && p.State != apiv1.OwnershipReleased && p.NodeName == node
}

// entry is the phase of a volume in the report of a node.
func (w *world) entry(m *machine, volume string) apiv1.StagePhase {
	d, found := w.store.Look((*apiv1.AzDriverNode)(nil), client.ObjectKey{
		Namespace: namespace,
		Name:      m.name,
	}).(*apiv1.AzDriverNode)
	if !found {
		return ""
	}
	for _, e := range d.Status.StagedVolumes {
		if e.VolumeName == volume {
			return e.Phase
		}
	}
	return ""
}
