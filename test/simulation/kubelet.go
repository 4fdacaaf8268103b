package simulation

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// mountState is what a kubelet knows of a mount.
type mountState int

const (
	notMounted mountState = iota
	// uncertain: a call ended with a code that is not final, or the kubelet found the mount's
	// directory when it started.
	uncertain
	mounted
)

// kubelet is the volume manager of a machine's kubelet. It calls the node plug-in as the kubelet of
// Kubernetes 1.36 does:
//
//   - It stages a volume only if it does not hold the volume for staged. While any pod on the machine wants the volume, the volume stays
//     staged, and the next pod gets a NodePublishVolume only.
//   - After a final error of NodeStageVolume it forgets the volume and does not unstage it. After any other code the volume is uncertain: the kubelet
//     stages it again while a pod wants it, and unstages it otherwise.
//   - When it starts, it finds the volumes that have a directory of a pod. They are uncertain, and no error makes the kubelet forget them.
//   - While it is dead it makes no calls, and Kubernetes calls the Node not ready. Containers and the node plug-in go on.
//
// A kubelet that is restarted while a volume is staged for no pod forgets that volume permanently.
// That is a defect of Kubernetes. The node plug-in unstages such a volume itself.
type kubelet struct {
	m *machine
	// dead is when the kubelet died; zero while it lives.
	dead    time.Time
	pods    []*localPod
	volumes []*localVolume
	// started counts the starts. The end of a call of an earlier start means nothing to the
	// kubelet.
	started int
	cancel  context.CancelFunc
	ctx     context.Context
}

// localPod is a pod as the kubelet of its node has it.
type localPod struct {
	*podModel
	// ending says that its containers are being stopped, which is over at ends.
	ending bool
	ends   time.Time
	// hung says that the container runtime does not answer, so that the containers do not end.
	hung          bool
	mount         mountState
	reconstructed bool
}

// localVolume is a volume as a kubelet has it.
type localVolume struct {
	v             *volumeModel
	device        mountState
	reconstructed bool
	// busy says that a call is under way. The next one comes at next, after failures that many
	// times in a row.
	busy     bool
	next     time.Time
	failures int
}

func newKubelet(m *machine) *kubelet {
	k := &kubelet{m: m}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// start starts the kubelet, or starts it again: what it knew is lost, but for what it finds in the
// directories of pods.
func (k *kubelet) start() {
	k.halt()
	k.dead = time.Time{}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.volumes = nil
	for _, p := range k.pods {
		if p.mount != notMounted {
			p.mount, p.reconstructed = uncertain, true
			l := k.volume(p.v)
			l.device, l.reconstructed = uncertain, true
		}
	}
}

// halt ends the calls of the kubelet.
func (k *kubelet) halt() {
	k.started++
	k.cancel()
	for _, l := range k.volumes {
		l.busy = false
	}
	synctest.Wait()
}

// die ends the kubelet beside a node plug-in that lives.
func (k *kubelet) die() {
	k.m.w.note("the kubelet of %s dies", k.m.name)
	k.halt()
	k.dead = k.m.w.now()
}

// mayDie reports whether the kubelet would forget no volume that is staged, or only volumes whose
// unstage was begun. The scene forgetUnstage has the others: what the V1 driver has staged, the node
// plug-in does not unstage without a call.
func (k *kubelet) mayDie() bool {
	return !k.calls() && !slices.ContainsFunc(k.volumes, func(l *localVolume) bool {
		begun := k.m.w.entry(k.m, l.v.name) == apiv1.PhaseUnstaging
		return l.device != notMounted && !begun &&
			!slices.ContainsFunc(k.pods, func(p *localPod) bool { return p.v == l.v && p.mount != notMounted })
	})
}

// calls reports whether a call of the kubelet is running.
func (k *kubelet) calls() bool {
	return slices.ContainsFunc(k.volumes, func(l *localVolume) bool { return l.busy })
}

// volume returns what the kubelet has of a volume, after adding it if there is nothing.
func (k *kubelet) volume(v *volumeModel) *localVolume {
	for _, l := range k.volumes {
		if l.v == v {
			return l
		}
	}
	l := &localVolume{v: v}
	k.volumes = append(k.volumes, l)
	return l
}

// reaches reports whether the kubelet reaches the API server.
func (k *kubelet) reaches() bool {
	return k.m.on && !k.m.cutOff && !k.m.w.apiDown && k.dead.IsZero() && k.m.frozen == nil
}

// wanted reports whether the volume is in the kubelet's desired state.
func (k *kubelet) wanted(v *volumeModel) bool {
	now := k.m.w.now()
	return slices.ContainsFunc(k.pods, func(p *localPod) bool { return p.v == v && !p.stopped(now) })
}

// choices are what the kubelet could do now.
func (k *kubelet) choices() []func() {
	if k == nil || !k.m.on || !k.dead.IsZero() || k.m.frozen != nil {
		return nil
	}
	var choices []func()
	if k.reaches() {
		if k.behind() {
			choices = append(choices, k.look)
		}
		if !k.m.w.byPods && !slices.Equal(k.inUse(), k.m.volumesInUse()) {
			choices = append(choices, k.tell)
		}
	}
	now := k.m.w.now()
	for _, p := range k.pods {
		l := k.volume(p.v)
		switch {
		case l.busy || l.next.After(now):
		case p.stopped(now) && p.mount != notMounted:
			choices = append(choices, func() { k.unpublish(l, p) })
		case p.stopped(now):
			choices = append(choices, func() { k.forget(p) })
		case p.mount != mounted && !p.ending && k.attached(p.v):
			choices = append(choices, func() { k.mount(l, p) })
		}
	}
	for _, l := range k.volumes {
		if l.busy || l.next.After(now) || k.wanted(l.v) ||
			slices.ContainsFunc(k.pods, func(p *localPod) bool { return p.v == l.v && p.mount != notMounted }) {
			continue
		}
		if l.device == notMounted {
			choices = append(choices, func() {
				k.volumes = slices.DeleteFunc(k.volumes,
					func(other *localVolume) bool { return other == l })
			})
		} else {
			choices = append(choices, func() { k.unstage(l) })
		}
	}
	return choices
}

// behind reports whether the API server has something of the machine's pods that the kubelet does
// not know.
func (k *kubelet) behind() bool {
	for _, p := range k.pods {
		if !p.ending && (p.deleting || p.gone) {
			return true
		}
	}
	return slices.ContainsFunc(k.m.w.pods, func(p *podModel) bool { return p.m == k.m && !p.gone && !p.known })
}

// look takes note of the pods that the API server has for the machine.
func (k *kubelet) look() {
	w := k.m.w
	for _, p := range w.pods {
		if p.m != k.m || p.gone || p.known {
			continue
		}
		if p.known = true; p.deleting { // it was never started
			w.removePod(p)
			continue
		}
		k.pods = append(k.pods, &localPod{podModel: p})
		k.volume(p.v)
	}
	for _, p := range k.pods {
		if !p.ending && (p.deleting || p.gone) {
			p.ending, p.ends = true, w.now().Add(time.Duration(w.random.IntN(5000))*time.Millisecond)
			w.note("%s ends its containers", p.name)
		}
	}
}

// forget is the end of a pod: its containers have stopped, and it has no volumes any more.
func (k *kubelet) forget(p *localPod) {
	if !p.gone && !k.reaches() {
		return
	}
	force := p.gone
	k.m.w.removePod(p.podModel)
	k.pods = slices.DeleteFunc(k.pods, func(other *localPod) bool { return other == p })
	if !force && !k.runs(p.v) {
		k.m.w.data.podGone(k.m, p.v)
	}
}

// runs reports whether the processes of a pod of the volume run, with the volume mounted.
func (k *kubelet) runs(v *volumeModel) bool {
	return slices.ContainsFunc(k.pods, func(l *localPod) bool { return l.v == v && l.mount == mounted && l.runs() })
}

// attached reports whether the kubelet may mount the volume: Kubernetes has attached it, or does
// not attach at all.
func (k *kubelet) attached(v *volumeModel) bool {
	w := k.m.w
	return w.byPods || w.attaching[shareOf(v, k.m)].is(attachedState) && w.inUse(k.m, v)
}

// inUse is what the kubelet has to say in the Node's status.
func (k *kubelet) inUse() []corev1.UniqueVolumeName {
	var names []corev1.UniqueVolumeName
	for _, l := range k.volumes {
		names = append(names, inUseName(l.v))
	}
	slices.Sort(names)
	return names
}

// tell writes it.
func (k *kubelet) tell() {
	k.m.w.changeNode(k.m, func(n *corev1.Node) { n.Status.VolumesInUse = k.inUse() })
}

// final says of the answer of a node plug-in whether the kubelet takes it for the end of what it
// asked for.
func final(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	default:
		return true
	}
}

// after is what a mount was, or may have become, after a call that was to mount it.
func (s mountState) after(err error, reconstructed bool) mountState {
	switch {
	case err == nil:
		return mounted
	case final(err) && s == uncertain && !reconstructed:
		return notMounted
	case !final(err) && s == notMounted:
		return uncertain
	default:
		return s
	}
}

// step of an operation of the kubelet: a call, and what the kubelet makes of its answer.
type step struct {
	what string
	do   func(ctx context.Context, s *csinode.Server) error
	then func(err error)
}

var errGone = status.Error(codes.Unavailable, "the node plug-in has stopped")

// run makes calls for a volume, one after the other, until one fails.
func (k *kubelet) run(l *localVolume, steps ...step) {
	w, started, parent := k.m.w, k.started, k.ctx
	timeout := time.Duration(2000+w.random.IntN(13000))*time.Millisecond + time.Duration(1+w.random.IntN(1e6))
	l.busy = true
	go func() {
		_ = roomy(0)
		var at *step
		defer w.recovered("kubelet")
		defer func() {
			if k.started != started {
				return
			}
			l.busy = false
			if at != nil { // the node plug-in was killed
				at.then(errGone)
				l.failed(w.now())
			}
		}()
		ctx, cancel := context.WithTimeout(logr.NewContext(parent, logr.Discard()), timeout)
		defer cancel()
		for i := range steps {
			at = &steps[i]
			by, server := k.m.plugin, k.m.server
			what := at.what + " " + k.m.name
			err := w.answer(at.do(withActor(ctx, what), server))
			w.yield(context.Background(), &access{
				by:   by,
				what: what + " returns",
				over: local,
			})
			if k.started != started {
				return
			}
			w.note("← %s: %v", what, err)
			at.then(err)
			at = nil
			if err != nil {
				l.failed(w.now())
				return
			}
			l.failures = 0
		}
	}()
	synctest.Wait()
}

// failed has the kubelet wait, longer each time.
func (l *localVolume) failed(now time.Time) {
	l.next = now.Add(min(500*time.Millisecond<<min(l.failures, 4), 5*time.Second))
	l.failures++
}

// mount stages a volume that is not held for staged, and publishes it for a pod.
func (k *kubelet) mount(l *localVolume, p *localPod) {
	v := l.v
	publish := step{"NodePublish " + p.name, func(ctx context.Context, s *csinode.Server) error {
		_, err := s.NodePublishVolume(context.WithValue(ctx, publishing{}, true), &csi.NodePublishVolumeRequest{
			VolumeId:          diskOf(v.name),
			StagingTargetPath: k.m.staging(v.name),
			TargetPath:        p.target(),
			VolumeCapability:  v.capability(),
		})
		return err
	}, func(err error) { p.mount = p.mount.after(err, p.reconstructed) }}
	if l.device == mounted {
		k.run(l, publish)
		return
	}
	k.run(l, step{"NodeStage " + v.name, func(ctx context.Context, s *csinode.Server) error {
		_, err := s.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId:          diskOf(v.name),
			StagingTargetPath: k.m.staging(v.name),
			VolumeCapability:  v.capability(),
		})
		return err
	}, func(err error) {
		if l.device = l.device.after(err, l.reconstructed); err == nil {
			l.reconstructed = false
		}
	}}, publish)
}

func (k *kubelet) unpublish(l *localVolume, p *localPod) {
	k.run(l, step{"NodeUnpublish " + p.name, func(ctx context.Context, s *csinode.Server) error {
		_, err := s.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: diskOf(p.v.name), TargetPath: p.target()})
		return err
	}, func(err error) {
		if p.mount = uncertain; err == nil {
			p.mount = notMounted
		}
	}})
}

func (k *kubelet) unstage(l *localVolume) {
	k.run(l, step{"NodeUnstage " + l.v.name, func(ctx context.Context, s *csinode.Server) error {
		_, err := s.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
			VolumeId:          diskOf(l.v.name),
			StagingTargetPath: k.m.staging(l.v.name),
		})
		return err
	}, func(err error) {
		if l.device = uncertain; err == nil {
			l.device = notMounted
		}
	}})
}
