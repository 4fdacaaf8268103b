package simulation

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// machine is a VM with its kernel, its kubelet as far as it matters, and its node plug-in.
type machine struct {
	w    *world
	name string
	// on says that it has power. Azure may report it late.
	on    bool
	boots int
	// asleep is set while it is hibernated: without power, and with its mounts.
	asleep *wakes
	// cutOff says that it cannot reach the API server. Its kernel continues to write.
	cutOff bool
	// shutsDown says that the kubelet shuts the machine down in good order: it calls the Node not
	// ready at once, ends the pods, and unmounts.
	shutsDown bool
	// frozen is set while Azure pauses it, and document is what Azure has announced for it.
	frozen   *freeze
	document maintenance.Document
	// silentSince is when the API server lost touch with the kubelet.
	silentSince time.Time
	// renewed is when the kubelet last renewed its lease.
	renewed time.Time
	// told is the last state of the Node that was written to the API server.
	told    corev1.ConditionStatus
	records nodereport.Records

	// The kernel: what is mounted where, and the devices that it knows.
	mounts  map[string]mount
	devices map[string]*device
	// sequence of the last device.
	sequence uint64
	leaks    []leak
	// open are the devices that processes have open.
	open []opened
	// slow says how the names of those effects on the kernel begin that do not happen yet; "" for
	// none.
	slow string
	// pretended are the keys that a mutant has not registered, by disk.
	pretended map[string]provisioner.ReservationKey

	// unreported says that a person edited the report, and that the node has not written it since. Such
	// a node does not hibernate: what a person wrote would be a proof of a machine that wakes up with
	// its mounts.
	unreported bool
	// pretends is the machine whose VM a liar says that it is; nil for its own.
	pretends *machine
	// kubelet is nil in histories without kubelets, where calls are random.
	kubelet *kubelet

	plugin *owner
	cancel context.CancelFunc
	server *csinode.Server
	report *nodereport.Reporter
	starts int
}

// mount is something mounted, of a volume.
type mount struct {
	provisioner.MountPoint
	volume string
}

// device is a disk at a machine, from its attach to its detach.
type device struct {
	path, disk string
	lun        int32
	sequence   uint64
	// protected devices take no writes of processes.
	protected bool
	// used reports whether a filesystem or a pod has used it.
	used bool
	// reads counts how often its reservation was read since it was found at its LUN.
	reads int
	// page is a write that waits in the page cache, or nil.
	page *transfer
	// cut says that it takes no writes any more: the disk was detached or the power failed.
	cut bool
	// late is until when writes in flight may reach the disk although another machine has reserved
	// it.
	late time.Time
}

// boot gives the machine power, a new kernel and a node plug-in.
func (m *machine) boot() {
	m.boots++
	m.asleep, m.frozen = nil, nil
	m.on, m.cutOff, m.silentSince = true, false, time.Time{}
	m.mounts = map[string]mount{}
	m.devices = map[string]*device{}
	m.leaks = nil
	m.pretended = map[string]provisioner.ReservationKey{}
	m.w.note("%s boots (%d)", m.name, m.boots)
	m.w.azure.changed = true
	if m.kubelet != nil {
		m.kubelet.start()
	} else {
		for _, v := range m.w.volumes {
			m.w.endPod(m, v) // the kubelet finds none of its pods running
		}
	}
	m.startPlugin()
}

// die cuts the power.
func (m *machine) die() {
	m.w.note("%s loses its power", m.name)
	m.asleep, m.frozen = nil, nil
	m.on, m.silentSince = false, m.w.now()
	m.stopPlugin()
	if m.kubelet != nil {
		m.kubelet.halt()
	}
	for _, d := range m.devices {
		d.lose()
	}
	m.mounts, m.devices, m.leaks, m.open = map[string]mount{}, map[string]*device{}, nil, nil
}

func (m *machine) stopPlugin() {
	if m.plugin != nil && !m.plugin.dead {
		m.w.kill(m.plugin, m.cancel)
	}
}

func (m *machine) bootID() string { return fmt.Sprintf("%s-boot-%d", m.name, m.boots) }

func (m *machine) startPlugin() {
	m.starts++
	m.plugin = &owner{name: fmt.Sprintf("%s.%d", m.name, m.starts), cutOff: m.cutOff, paused: m.frozen != nil}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(logr.NewContext(context.Background(), logr.Discard()))
	api := m.w.tamper(memapi.NewClient(m.w.store, m.w.gate(m.plugin), nil), m.name)
	host := kernel{m, m.plugin}
	report := nodereport.New(nodereport.Options{
		Client:         api,
		Namespace:      namespace,
		NodeName:       m.name,
		Spec:           m.spec(),
		DriverVersion:  "simulated",
		SlowInterval:   10 * time.Second,
		FastInterval:   2 * time.Second,
		ProbedInterval: 30 * time.Second,
		Scanner: nodereport.Scanner{
			KubeletDir: m.kubeletDir(),
			DriverName: driverName,
			BootID:     m.bootID(),
			Records:    m.records,
			Mounts:     host.Mounts(),
			Devices:    host.Devices(),
		},
		Clock: gatedClock{host},
	})
	report.SetReady(true, "Serving", "")
	m.report = report
	m.server = csinode.New(csinode.Options{
		NodeName:     m.name,
		DriverName:   driverName,
		Namespace:    namespace,
		Instance:     m.spec(),
		BootID:       m.bootID(),
		KubeletDir:   m.kubeletDir(),
		Cluster:      clusterIdentity,
		Client:       api,
		Host:         host,
		Report:       report,
		Records:      m.records,
		Limit:        csinode.Limit{Volumes: slots},
		AwaitPublish: m.w.byPods,
		DiskAt:       m.w.metadata(host.diskAt),
		Reservations: true,
		FencesAtOnce: 1,
		NewUUID:      func() string { m.w.uuids++; return fmt.Sprintf("fs-%d", m.w.uuids) },
	})
	plugin := m.plugin
	go func() {
		defer m.w.recovered(plugin.name)
		_ = report.Start(withActor(ctx, "report"))
	}()
	synctest.Wait() // two parts that began at once would write in an order that differs from run to run
	server := m.server
	go func() {
		defer m.w.recovered(plugin.name)
		m.w.must(server.AnswerFences(withActor(ctx, "fences"), nil))
	}()
	synctest.Wait()
	go func() {
		defer m.w.recovered(plugin.name)
		wait.UntilWithContext(withActor(ctx, "end unfinished calls"), func(ctx context.Context) {
			if mutant := m.w.options.Mutant; mutant != CallsAreRepeated && mutant != FinalCode {
				server.EndUnfinished(ctx)
			}
			server.EndReservations(ctx)
			server.ProtectReplicas(ctx)
		}, csinode.ClearInterval+151*time.Nanosecond) // at moments at which no other timer of the node ends
	}()
	synctest.Wait()
	m.readEvents()
}

// setCutOff cuts the machine off the API server, or joins it again.
func (m *machine) setCutOff(off bool) {
	m.cutOff, m.plugin.cutOff = off, off
	m.silentSince = time.Time{}
	if off {
		m.silentSince = m.w.now()
		m.w.note("%s is cut off", m.name)
	} else {
		m.w.note("%s can be reached again", m.name)
	}
}

// kubeletDir is the kubelet's directory, in which only what the node plug-in reads is there.
func (m *machine) kubeletDir() string { return filepath.Join(m.w.directory(), m.name, "kubelet") }

// staging is where the kubelet has a volume staged.
func (m *machine) staging(volume string) string {
	return filepath.Join(m.kubeletDir(), "plugins/kubernetes.io/csi", driverName, volume, stagingName)
}

const stagingName = "globalmount"

// volumeAt is the volume of a mount's target.
func volumeAt(target string) string {
	if filepath.Base(target) == stagingName {
		return filepath.Base(filepath.Dir(target))
	}
	return filepath.Base(target)
}

// mounted reports whether anything of a volume is mounted.
func (m *machine) mounted(volume string) bool {
	for _, mount := range m.mounts {
		if mount.volume == volume {
			return true
		}
	}
	return false
}

// live reports whether there is a mount at the target, of a device that takes writes.
func (m *machine) live(target string) bool {
	mount, found := m.mounts[target]
	return found && m.works(mount.Source)
}

func (m *machine) works(path string) bool {
	d := m.devices[path]
	return m.on && d != nil && !d.cut && m.takes(d)
}

// writes reports whether the machine can write to the volume now.
func (m *machine) writes(volume string) bool {
	for _, mount := range m.mounts {
		if mount.volume == volume && m.works(mount.Source) {
			return true
		}
	}
	return slices.ContainsFunc(m.leaks, func(l leak) bool {
		d := m.devices[l.path] // which another disk has by now, if the leak does not hold it
		return l.volume == volume && m.works(l.path) && volumeOf(d.disk) == volume && !m.ended(l) && !(l.file && d.protected)
	})
}

// look makes the kernel notice detached disks. It is called after each step, so that it misses no
// detach.
func (m *machine) look() {
	for _, d := range m.devices {
		if lun, attached := m.w.azure.holds(vmOf(m.name), d.disk); !attached || lun != d.lun {
			d.cut = true
			d.lose()
		}
	}
}

// unheard is when the API server last heard of a kubelet that is silent now; zero if it is not
// silent.
func (m *machine) unheard() time.Time {
	if m.silentSince.IsZero() && m.frozen != nil {
		return m.frozen.since
	}
	if m.silentSince.IsZero() && m.kubelet != nil {
		return m.kubelet.dead
	}
	return m.silentSince
}

// updateNode writes the Node as Kubernetes' node controller does: not ready some time after the
// kubelet became silent.
func (m *machine) updateNode() {
	since := m.unheard()
	if m.shutsDown && since.IsZero() {
		since = m.w.now().Add(-kubeletGrace)
	}
	if since.IsZero() && !m.w.apiDown && m.w.now().Sub(m.renewed) >= leaseDuration/3 {
		m.renewLease()
	}
	ready := corev1.ConditionTrue
	if !since.IsZero() {
		if m.w.now().Sub(since) < kubeletGrace {
			return
		}
		ready = corev1.ConditionUnknown
	}
	if m.w.apiDown || m.told == ready {
		return
	}
	m.told = ready
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	if m.w.store.Get(clientKey(n), n) != nil {
		return
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type:               corev1.NodeReady,
		Status:             ready,
		LastTransitionTime: metav1.NewTime(m.w.now()),
	}}
	m.w.note("Node %s is ready: %s", m.name, ready)
	_ = m.w.store.Update(n, true)
}

// leaseDuration of a kubelet's lease, shortened.
const leaseDuration = 9 * time.Second

// renewLease renews the kubelet's lease.
func (m *machine) renewLease() {
	m.renewed = m.w.now()
	seconds, now := int32(leaseDuration/time.Second), metav1.NewMicroTime(m.renewed)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: m.name}}
	create := m.w.store.Get(clientKey(l), l) != nil
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       &m.name,
		LeaseDurationSeconds: &seconds,
		RenewTime:            &now,
	}
	if create {
		_ = m.w.store.Create(l)
		return
	}
	_ = m.w.store.Update(l, false)
}

// kubeletGrace is Kubernetes' node-monitor-grace-period, shortened.
const kubeletGrace = 10 * time.Second
