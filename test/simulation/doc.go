// Package simulation runs the controller plug-in's and the node plug-in's real code through random
// histories, one for each seed, and checks the laws of the design after every step.
//
// Reconcilers, CSI servers and reporters are the production ones. Below them lie an API server in
// memory (internal/testkit/memapi), whose caches lag behind by an amount that the seed decides, and
// a platform in memory (provisioner/fake). Kernels, kubelets, the network and power are models.
//
// In a quarter of the histories the driver has no VolumeAttachments: pods are created and deleted
// instead of calls to publish and unpublish, and the reconciler attachdetach makes the calls. In a
// third there are disks to be retained, and people delete PersistentVolumes and AzVolumes. In a
// fifth, disks with several shares are raw block volumes that several nodes use at once.
//
// Each of the following is in a share of the histories, by the seed, so that all combinations occur
// (history.go, Behaviours):
//
//   - kubelets: pods are bound to nodes, and models of kubelets and of Kubernetes' attach/detach controller make the calls (kubelet.go, attachdetach.go). A kubelet
//     stages a volume once for all of its pods, forgets it after a final error, and can die beside a node plug-in that lives;
//   - faults of nodes: a disk is detached manually and its LUN becomes another disk's, a mount namespace keeps a mount, a volume has no record (nodefaults.go);
//   - liars: an attacker with a node's token writes false reports into its AzDriverNode (liars.go);
//   - edits: people restore and edit the driver's objects; edits.go says what they do not do, and why. When the faults stop, a person does what the guides
//     describe for situations that the driver cannot resolve (person.go);
//   - clusters: a VM of another cluster uses a disk, and this cluster has its records as a restore leaves them (clusters.go); this cluster is
//     down and loses its disk to the other one, it returns, and later both want the disk at once (taken.go);
//   - scenes: situations that need several faults in a certain order are played after the faults have stopped (scenes.go): the driver takes over what the V1
//     driver staged while a mount namespace holds it, a machine that was fenced is reachable again without a reboot, a pod is deleted while its volume
//     is being staged and requests fail, a call to stage a volume comes after the proof, a machine that was fenced by a pre-emption has the disk attached while
//     others use the volume, a machine reserves a disk long after it was granted the volume, a volume is staged in place when a person has
//     detached its disk and it is attached again by another path, a machine shuts down in good order and flushes for long, a detach by a person
//     has failed where a pod comes to;
//   - goalstate: VMs list what they are to have: also a disk whose attach has failed, and not one whose detach has;
//   - pauses: Azure freezes machines, with and without an announcement, processes get no time, and nodes announce what is not so (pauses.go);
//   - nights: all machines but two are switched off at Azure, and one of the two dies (nights.go);
//   - openers: a process outside of the pods, or a loop device, keeps a device open and writes to it whenever the kernel lets it (nodefaults.go);
//   - overlap: a standby takes the lease from a leader that runs on for a while (nodefaults.go).
//
// # One seed, one history
//
// A history runs inside a synctest bubble, so that its clock is its own. Every access to the API
// server, to Azure or to a kernel stops at a gate (world.yield). One gate is opened at a time, and
// nothing else happens until all callers wait again. The seed decides which gate it is, whether its
// answer is lost, and whether the caller dies before or after it. So two processes are interleaved
// at every access of one that the other can notice, and a process is killed between any two.
// Goroutines that one step wakes compete for the locks of the driver. With one processor their order
// is always the same, so a replay of a seed uses one; histories that run side by side use all, and
// some of them differ from their replay.
//
// # What is checked
//
//   - one writer: no two nodes have a volume mounted over a device that takes writes (world.writers), and no writer of another cluster is cut off
//     (world.undisturbed);
//   - no mount without the epoch: a kernel mounts only for the owner (kernel.Mount);
//   - no hand-over without proof: an ownership becomes Released after Releasing, with a proof, and then its node cannot write (world.ownershipChanged);
//   - no use of a shared disk without its reservation (kernel.isReserved), and a node that was fenced by a pre-emption cannot write while the proof
//     stands (world.stayFenced), and whose attachment is deleted and never changed (world.preemptedKept);
//   - a volume is a register: no write that a pod has synced, or that its machine has flushed, is lost, and none comes after the proof (data.go);
//   - a disk takes the last flush of the node that owns its volume (kernel.flush);
//   - for volumes of several nodes the attachment has the part of the ownership: no node uses the device without one (world.mayUse), and when a proof is
//     recorded in it, its node cannot write (world.proved);
//   - no disk is detached from a node that writes to it, except by force (world.takenFrom), and not by force from one that shuts down and flushes
//     (world.flushing);
//   - a disk counts as attached only if its attach has succeeded (world.hasDisk);
//   - nothing leaks: no object is removed before its disk is detached, and at the end nothing is left at Azure or in the API;
//   - replicas stay within their number, the disk's shares and the nodes' slots;
//   - only DeleteVolume deletes a disk, even if other clients delete PersistentVolumes and AzVolumes at any time;
//   - no disk ever shrinks, and at the end each disk is equal to the spec of its volume;
//   - identity: no disk is mounted for another one's volume (mounts.sameDisk), and its reservations change only with keys of that disk (commands.ofItsDisk);
//   - a pause is not a death: no node is fenced while Azure pauses it as announced (world.fencedInPause), and one that stays silent is;
//   - never format twice: no filesystem is created on a device that is not blank;
//   - the world settles: when the faults stop, every volume is published where it is wanted.
package simulation
