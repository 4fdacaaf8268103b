package simulation

import (
	"context"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// This cluster is down, and a person detaches the disk of one of its volumes from every VM, as
// docs/guides/restore.md describes, and starts it in another cluster. Then this cluster returns.
// Its objects are as they were, and none of them shows that the disk is the other cluster's now.

const (
	// AttachesUnasked: after an attach, and before one that is repeated, Azure is not asked whether a VM
	// of another cluster has the disk. Publishes still ask.
	AttachesUnasked Mutant = "attaches are not followed by a question"
	// RefusedStaysAttached: a disk that must not be used here is not detached again.
	RefusedStaysAttached Mutant = "refused disks stay attached"

	// takenFor is for how long the other cluster uses the disk after this one is back.
	takenFor = 8 * time.Minute
	// wonFor is for how long the other cluster uses a disk for which both contended.
	wonFor = time.Minute
	// rivalAsks is how long the other cluster's attach takes, and rivalRetries its wait after it was
	// refused.
	rivalAsks, rivalRetries = 13 * time.Second, 10 * time.Second
	rivalYields             = 2 * time.Minute
)

// playTaken plays the scene, or one in which both clusters want the disk at once.
func (w *world) playTaken(c *kubernetes) {
	for _, v := range w.volumes {
		if !w.clusters || v.want == "" || v.shares < 2 || v.several || !w.machine(v.want).well() {
			continue
		}
		w.until("replicas and Azure are as they should be before the cluster is down", patience, c.notSettled)
		if w.seed%2 == 0 {
			w.contend(c, v)
		} else {
			w.useTaken(c, v)
		}
		w.until("a volume that another cluster had is where it is wanted", patience, c.place)
		w.until("replicas and Azure are as they should be after another cluster had a disk", patience, c.notSettled)
		return
	}
}

// useTaken has the other cluster use the disk while this cluster returns.
func (w *world) useTaken(c *kubernetes, v *volumeModel) {
	w.goDown()
	w.takeAway(v)
	w.useElsewhere(v)
	w.goUp()
	w.within(takenFor, func() bool { _ = c.place(); return false })
	if vms := w.having(v); len(vms) > 0 {
		w.broken("two clusters: %s stays attached to %s, although another cluster uses it", v.name, lastOf(vms[0]))
	}
	w.leaveElsewhere(v)
}

func (w *world) goDown() {
	w.note("the cluster is down")
	for _, p := range w.processes {
		if !p.dead {
			p.stop()
		}
	}
	for _, m := range w.machines {
		if m.on {
			m.die()
		}
	}
}

func (w *world) goUp() {
	w.note("the cluster returns")
	for _, m := range w.machines {
		w.power(m)
	}
	for _, p := range w.processes {
		w.must(p.start())
	}
	w.elect()
}

// takeAway makes a person detach a disk from every VM of this cluster.
func (w *world) takeAway(v *volumeModel) {
	for _, m := range w.machines {
		w.detachManually(m, v)
	}
	w.within(time.Minute, func() bool { return len(w.having(v)) == 0 })
}

// having are the VMs of this cluster that have the disk of a volume.
func (w *world) having(v *volumeModel) []string {
	var vms []string
	for _, m := range w.machines {
		if _, has := w.azure.holds(vmOf(m.name), diskOf(v.name)); has {
			vms = append(vms, vmOf(m.name))
		}
	}
	return vms
}

// rival is the other cluster's controller, which follows the same protocol.
type rival struct {
	w        *world
	v        *volumeModel
	attached bool
	// next is when it asks, after an attach, or tries again.
	next time.Time
}

// contend takes the disk away, and has both clusters attach it at once, until one of them uses it. A
// rival that wins uses it for a while.
func (w *world) contend(c *kubernetes, v *volumeModel) {
	w.note("two clusters contend for %s", v.name)
	w.goDown()
	w.takeAway(v)
	w.goUp()
	r := &rival{w: w, v: v}
	w.until("two clusters block each other", patience, func() string {
		why := c.place()
		if why == "" && w.machine(v.want).writes(v.name) {
			return ""
		}
		if r.act(); w.elsewhere != nil {
			return ""
		}
		return why
	})
	if r.attached && w.elsewhere == nil {
		r.leave()
	}
	if w.elsewhere != nil {
		w.within(wonFor, func() bool { _ = c.place(); return false })
		w.leaveElsewhere(v)
	}
}

// act takes the next step of the rival. Its first attach is as soon as a VM of this cluster has the
// disk, so that both have attached it before either asks.
func (r *rival) act() {
	w, having := r.w, r.w.having(r.v)
	switch {
	case w.now().Before(r.next):
	case !r.attached && r.next.IsZero() && len(having) == 0:
	case !r.attached && !r.next.IsZero() && len(having) > 0:
		r.next = w.now().Add(rivalRetries)
	case !r.attached:
		w.note("another cluster attaches %s", r.v.name)
		w.addProduction(r.v)
		r.attached, r.next = true, w.now().Add(rivalAsks)
	case len(having) == 0:
		r.attached = false
		w.cloud.RemoveVM(vmOf(production))
		w.useElsewhere(r.v)
	default:
		r.next = w.now().Add(rivalRetries)
		for _, vm := range having {
			if strings.ToLower(vm) < strings.ToLower(vmOf(production)) {
				r.next = w.now().Add(rivalYields)
			}
		}
		r.leave()
	}
}

func (r *rival) leave() {
	r.w.note("another cluster detaches %s", r.v.name)
	r.attached = false
	r.w.cloud.RemoveVM(vmOf(production))
	r.w.azure.changed = true
}

// addProduction attaches the disk of a volume to a VM of another cluster.
func (w *world) addProduction(v *volumeModel) {
	w.cloud.AddVM(provisioner.Instance{
		ID:        vmOf(production),
		Name:      production,
		Size:      vmSize,
		Location:  location,
		Zone:      "1",
		DataDisks: []provisioner.Attachment{{DiskID: diskOf(v.name)}},
	})
	w.azure.changed = true
}

// keptRefused reports whether a mutant leaves a disk attached where its attach was refused.
func (w *world) keptRefused(vm, disk string) bool {
	if w.options.Mutant != RefusedStaysAttached {
		return false
	}
	a := w.attachment(volumeOf(disk), lastOf(vm))
	return a != nil && a.DeletionTimestamp == nil
}

// unasked reports whether a mutant hides the VMs of another cluster from a read.
func (w *world) unasked(ctx context.Context) bool {
	return w.options.Mutant == AttachesUnasked && strings.HasPrefix(actorOf(ctx), "job")
}
