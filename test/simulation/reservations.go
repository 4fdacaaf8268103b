package simulation

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/sharedisk"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// PlainPreempt: a node sends PREEMPT without ABORT, so that writes in flight still reach the
	// disk.
	PlainPreempt Mutant = "plain PREEMPT"
	// NoReserve: a node that stages sends no command, and acts as if it held the reservation.
	NoReserve Mutant = "no RESERVE"
	// KeysWithoutEpoch: a node that stages takes the key of each other node for one of an earlier
	// epoch.
	KeysWithoutEpoch Mutant = "keys without an epoch"
	// ReleaseBeforeFlush: a node ends its reservation when it has unmounted the volume, and flushes
	// the device after that.
	ReleaseBeforeFlush Mutant = "release before flush"
	// LeavesEarly: a node that unstages ends its reservation although a fenced node still has the
	// disk attached.
	LeavesEarly Mutant = "leaves early"
	// NoHolder: the controller does not see that a node guards against another one, and detaches
	// the disk from it.
	NoHolder Mutant = "no holder"
	// KeyIsPath: a node takes a reservation with its key for its own, whichever path has registered
	// the key.
	KeyIsPath Mutant = "a key is a path"
	// NoIdentity: a node that stages does not identify the device at a LUN before it changes the
	// reservation of the disk.
	NoIdentity Mutant = "no identity"
	// ReplacedIsPreempted: a node that fences takes its own reservation for a proof, although it
	// has pre-empted nothing.
	ReplacedIsPreempted Mutant = "replaced is pre-empted"
)

// clusterIdentity is part of the keys of all nodes.
const clusterIdentity provisioner.ClusterIdentity = 1

// lateWrites is for how long writes in flight may reach a disk after a command that ends the right
// to write, and does not abort them.
const lateWrites = time.Second

// Reservations implements provisioner.Host.
func (k kernel) Reservations() provisioner.Reservations {
	return commands{sharedisk.Node{Name: k.m.initiator(), Disk: func(ctx context.Context, path string) (*sharedisk.Disk, error) {
		if err := k.enter(ctx, "reservation of "+path, nil); err != nil {
			return nil, provisioner.Errorf(provisioner.Unavailable, "%s: %w", path, err)
		}
		d, err := k.device(path)
		if err != nil {
			return nil, err
		}
		if !k.m.w.reservations {
			return nil, provisioner.Errorf(provisioner.Unsupported, "%s has no reservations", path)
		}
		return k.m.w.sharedDisk(d.disk), nil
	}}, k}
}

// commands are the reservations of one machine. Those that take away another machine's right to
// write, and do not abort, let its writes in flight continue.
type commands struct {
	provisioner.Reservations
	k kernel
}

// Read implements provisioner.Reservations.
func (c commands) Read(ctx context.Context, path string) (provisioner.ReservationState, error) {
	state, err := c.Reservations.Read(ctx, path)
	if err != nil {
		return state, err
	}
	d := c.k.m.devices[path]
	d.reads++
	if key := c.k.m.pretended[d.disk]; key != 0 {
		state.Type, state.Holder, state.Keys = provisioner.WriteExclusive, key, append(state.Keys, key)
	}
	if c.withoutEpochs(ctx) && state.Holder.IsDrivers() && !c.k.m.takes(d) {
		state.Holder, err = provisioner.NewReservationKey(clusterIdentity, 1, "another node", d.disk)
	}
	return state, err
}

// withoutEpochs reports whether a mutant stages a volume.
func (c commands) withoutEpochs(ctx context.Context) bool {
	return c.k.m.w.options.Mutant == KeysWithoutEpoch && !strings.HasPrefix(actorOf(ctx), "fences")
}

// Register implements provisioner.Reservations.
func (c commands) Register(ctx context.Context, path string, key provisioner.ReservationKey) error {
	if c.k.m.w.options.Mutant == NoReserve && !key.IsFenceOnly() {
		if d := c.k.m.devices[path]; d != nil {
			c.k.m.pretended[d.disk] = key
			return nil
		}
	}
	c.ofItsDisk(path, key)
	return c.Reservations.Register(ctx, path, key)
}

// ofItsDisk holds that a machine changes a disk's reservations only with keys of that disk. Every
// change begins with a registration.
func (c commands) ofItsDisk(path string, key provisioner.ReservationKey) {
	d := c.k.m.devices[path]
	if d == nil || d.cut {
		return
	}
	own, err := provisioner.NewReservationKey(clusterIdentity, key.Epoch(), c.k.m.name, d.disk)
	c.k.m.w.must(err)
	if key != own && key != own.FenceOnly() {
		c.k.m.w.broken("identity: %s registers key %s of another disk with the disk of %s", c.k.m.name, key, volumeOf(d.disk))
	}
}

// taken returns what a mutant takes a device for before it changes the reservation of the disk: the
// filesystem that is recorded for the volume of the call.
func (k kernel) taken(ctx context.Context, d *device) (provisioner.Filesystem, bool) {
	w := k.m.w
	if w.options.Mutant != NoIdentity || d.reads != 1 {
		return provisioner.Filesystem{}, false
	}
	for _, v := range w.volumes {
		changes := v.shares > 1 || w.sharedDisk(d.disk).State().Holder.IsDrivers()
		if o := w.volume(v.name); changes && strings.Contains(actorOf(ctx), v.name) && o != nil && o.Status.Filesystem != nil {
			return provisioner.Filesystem{Type: o.Status.Filesystem.Type, UUID: o.Status.Filesystem.UUID}, true
		}
	}
	return provisioner.Filesystem{}, false
}

// Unregister implements provisioner.Reservations.
func (c commands) Unregister(ctx context.Context, path string, key provisioner.ReservationKey) error {
	if d := c.k.m.devices[path]; d != nil && c.k.m.pretended[d.disk] == key {
		delete(c.k.m.pretended, d.disk)
		return nil
	}
	return c.Reservations.Unregister(ctx, path, key)
}

// Aborts implements provisioner.Reservations.
func (c commands) Aborts(ctx context.Context, path string, own provisioner.ReservationKey) (bool, error) {
	if d := c.k.m.devices[path]; d != nil && c.k.m.pretended[d.disk] == own {
		return true, nil
	}
	return c.Reservations.Aborts(ctx, path, own)
}

// Preempt implements provisioner.Reservations.
func (c commands) Preempt(ctx context.Context, path string, own, victim provisioner.ReservationKey) error {
	return c.letContinue(path, func() error { return c.Reservations.Preempt(ctx, path, own, victim) })
}

// Reserve implements provisioner.Reservations.
func (c commands) Reserve(ctx context.Context, path string, key provisioner.ReservationKey) error {
	if d := c.k.m.devices[path]; d != nil && c.k.m.pretended[d.disk] == key {
		return nil
	}
	if d := c.k.m.devices[path]; d != nil && c.k.m.w.options.Mutant == KeyIsPath &&
		c.k.m.w.sharedDisk(d.disk).State().Holder == key {
		return nil
	}
	return c.letContinue(path, func() error { return c.Reservations.Reserve(ctx, path, key) })
}

// PreemptAndAbort implements provisioner.Reservations.
func (c commands) PreemptAndAbort(ctx context.Context, path string, own, victim provisioner.ReservationKey) error {
	preempt := func() error {
		if d := c.k.m.devices[path]; d != nil && c.withoutEpochs(ctx) {
			victim = c.k.m.w.sharedDisk(d.disk).State().Holder
		}
		return c.Reservations.PreemptAndAbort(ctx, path, own, victim)
	}
	if c.k.m.w.options.Mutant == PlainPreempt {
		return c.letContinue(path, preempt)
	}
	return preempt()
}

// letContinue lets the writes in flight of the machines continue that could write to the disk
// before a command.
func (c commands) letContinue(path string, command func() error) error {
	w := c.k.m.w
	var writing []*device
	if d := c.k.m.devices[path]; d != nil {
		for _, m := range w.machines {
			for _, other := range m.devices {
				if m != c.k.m && other.disk == d.disk && m.works(other.path) {
					writing = append(writing, other)
				}
			}
		}
	}
	err := command()
	for _, d := range writing {
		d.late = w.now().Add(lateWrites)
	}
	return err
}

// initiator is what the disks take a machine for.
func (m *machine) initiator() string {
	if m.w.oneInitiator {
		return "every machine"
	}
	return m.name
}

// pathChanged gives a machine another path to a disk that was attached to it.
func (w *world) pathChanged(m *machine, disk string) {
	if w.paths && w.reservations && !w.oneInitiator {
		w.formerPaths++
		w.sharedDisk(disk).ChangePath(m.name, fmt.Sprintf("%s by path %d", m.name, w.formerPaths))
	}
}

// recordEarly makes the record of a fence for a mutant before it has registered.
func (k kernel) recordEarly(ctx context.Context, d *device) {
	w := k.m.w
	if w.options.Mutant != ReplacedIsPreempted || !strings.HasPrefix(actorOf(ctx), "fences") {
		return
	}
	victim := w.sharedDisk(d.disk).State().Holder
	if victim.Epoch() == 0 || victim.IsFenceOnly() {
		return
	}
	own, err := provisioner.NewReservationKey(clusterIdentity, victim.Epoch(), k.m.name, d.disk)
	w.must(err)
	w.must(k.m.records.PutGuard(nodereport.Guard{
		VolumeName: volumeOf(d.disk),
		Key:        own.FenceOnly().String(),
		Victim:     victim.String(),
	}))
}

// sharedDisk has the reservations of a disk.
func (w *world) sharedDisk(disk string) *sharedisk.Disk {
	if w.shared[disk] == nil {
		w.shared[disk] = &sharedisk.Disk{}
	}
	return w.shared[disk]
}

// takes reports whether the disk takes the writes of a machine.
func (m *machine) takes(d *device) bool {
	return m.allowed(d) || m.w.now().Before(d.late)
}

// allowed reports whether the disk takes new commands of a machine that write or flush.
func (m *machine) allowed(d *device) bool {
	return !m.w.reservations || m.w.sharedDisk(d.disk).Allows(m.initiator(), true)
}

// isReserved holds law 3d: a node reserves a shared disk before it writes to it, unless the disk
// takes all nodes for one initiator.
func (k kernel) isReserved(d *device) {
	d.used = true
	w := k.m.w
	v := w.model(volumeOf(d.disk))
	if w.violation == "" && w.reservations && v != nil && v.shares > 1 && !v.several && !w.oneInitiator &&
		w.sharedDisk(d.disk).State().Type == provisioner.NoReservation {
		w.broken("law 3: %s uses the disk of %s, which is not reserved", k.m.name, v.name)
	}
}

// flush flushes a device that works. The disk must take the last writes of a node that releases a
// volume without having lost it.
func (k kernel) flush(d *device) error {
	if k.m.allowed(d) {
		k.m.w.data.writeBack(k.m, d, true)
		return nil
	}
	w, failed := k.m.w, failedDevice(d.path)
	if !d.used {
		return failed // by an unstage of another volume, which had this device before
	}
	v := w.volume(volumeOf(d.disk))
	a := w.attachment(volumeOf(d.disk), k.m.name)
	if v == nil || a == nil || w.model(v.Name).edited || !ownership.OwnedBy(v, k.m.name) || ownership.FenceDecided(v, k.m.name) ||
		ownership.HasProof(a) {
		return failed
	}
	w.broken("law 3: the disk of %s refuses the last writes of %s, which still owns it: the disk has %s", v.Name, k.m.name,
		w.sharedDisk(d.disk).State())
	return failed
}

// releaseEarly ends the reservation of a mutant that has unmounted a volume.
func (k kernel) releaseEarly(target string) {
	mount, found := k.m.mounts[target]
	if k.m.w.options.Mutant != ReleaseBeforeFlush || !found || filepath.Base(target) != stagingName {
		return
	}
	if d := k.m.devices[mount.Source]; d != nil && k.m.takes(d) {
		disk := k.m.w.sharedDisk(d.disk)
		node := sharedisk.Node{
			Name: k.m.initiator(),
			Disk: func(context.Context, string) (*sharedisk.Disk, error) { return disk, nil },
		}
		k.m.w.must(node.Unregister(context.Background(), d.path, disk.State().Holder))
	}
}

// preemptedChanged remembers the attachments whose nodes were fenced by pre-emption, and whose
// disks Azure has not detached yet.
func (w *world) preemptedChanged(c memapi.Change) {
	object := c.After
	if object == nil {
		object = c.Before
	}
	a, isAttachment := object.(*apiv1.AzVolumeAttachment)
	if !isAttachment {
		return
	}
	if c.After != nil && ownership.Preempted(a) {
		if w.preempted[a.Name] == nil {
			w.note("%s is fenced from %s by pre-emption under epoch %d", a.Spec.NodeName, a.Spec.VolumeName, a.Spec.Epoch)
		}
		w.preempted[a.Name] = a
	} else {
		delete(w.preempted, a.Name)
	}
}

// stayFenced holds law 3d: a node from which the reservation was taken cannot write as long as the
// proof stands.
func (w *world) stayFenced() {
	for _, a := range w.preempted {
		if w.machine(a.Spec.NodeName).writes(a.Spec.VolumeName) {
			w.broken("law 3: %s was fenced from %s by pre-emption under epoch %d, and can write to it", a.Spec.NodeName,
				a.Spec.VolumeName, a.Spec.Epoch)
		}
	}
}

// forgetDetached makes the disks forget the machines that they are not attached to.
func (w *world) forgetDetached() {
	if !w.forgets {
		return
	}
	needed := w.needed()
	for disk, shared := range w.shared {
		if len(shared.State().Keys) == 0 {
			continue
		}
		for _, m := range w.machines {
			_, attached := w.azure.holds(vmOf(m.name), disk)
			if !attached && !(needed(disk) && w.byPerson[m.name+" "+disk]) {
				shared.Lose(m.name)
			}
		}
	}
}

// needed returns whether the reservation of a disk guards against a machine.
func (w *world) needed() func(disk string) bool {
	volumes := map[string]bool{}
	for _, a := range w.preempted {
		volumes[a.Spec.VolumeName] = true
	}
	return func(disk string) bool { return volumes[volumeOf(disk)] || w.shared[disk].State().Holder.IsFenceOnly() }
}

// forgetDeallocated makes the disks forget a machine that a person deallocates at Azure. No driver
// can prevent that, so a machine that guards against another one is not forgotten.
func (w *world) forgetDeallocated(m *machine) {
	if !w.forgets {
		return
	}
	needed := w.needed()
	for disk, shared := range w.shared {
		if !needed(disk) {
			shared.Lose(m.name)
		}
	}
}
