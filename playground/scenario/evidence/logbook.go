package evidence

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

// logPause is how long is waited before a log or the list of the driver's pods is asked
// for again.
const logPause = 500 * time.Millisecond

// logTimeout bounds the reading of one log to its present end.
const logTimeout = 10 * time.Second

// LogBook keeps what the driver's plug-ins log while a scenario runs. It reads along,
// because a plug-in whose node is lost, or that is killed, cannot be asked afterwards.
type LogBook struct {
	kube  kubernetes.Interface
	clock clock.WithTicker
	from  time.Time

	mu    sync.Mutex
	calls []Call
	// known are the lines of calls that are kept, by container: a log is asked for again
	// from a whole second on.
	known map[string]bool
	// reading are the containers whose logs are being followed.
	reading map[string]bool
}

// NewLogBook returns a log book that keeps what is logged from now on, once Follow is called.
func NewLogBook(kube kubernetes.Interface, clock clock.WithTicker) *LogBook {
	return &LogBook{
		kube:    kube,
		clock:   clock,
		from:    clock.Now(),
		known:   map[string]bool{},
		reading: map[string]bool{},
	}
}

// Follow reads the logs of all plug-ins, also of those that start later, until the
// context ends.
func (l *LogBook) Follow(ctx context.Context) {
	go func() {
		for ctx.Err() == nil {
			l.followPods(ctx)
			l.pause(ctx)
		}
	}()
}

func (l *LogBook) pause(ctx context.Context) {
	select {
	case <-l.clock.After(logPause):
	case <-ctx.Done():
	}
}

func (l *LogBook) followPods(ctx context.Context) {
	pods := l.kube.CoreV1().Pods(metav1.NamespaceAll)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: observer.DriverSelector})
	if err != nil {
		return
	}
	for i := range list.Items {
		l.followPod(ctx, &list.Items[i])
	}
	changes, err := pods.Watch(ctx, metav1.ListOptions{
		LabelSelector:   observer.DriverSelector,
		ResourceVersion: list.ResourceVersion,
	})
	if err != nil {
		return
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if pod, ok := change.Object.(*corev1.Pod); ok && change.Type != watch.Deleted {
			l.followPod(ctx, pod)
		}
	}
}

// followPod begins to read the log of the plug-in's container, unless that is done.
func (l *LogBook) followPod(ctx context.Context, pod *corev1.Pod) {
	component := pod.Labels[observer.ComponentLabel]
	if component != observer.ControllerPlugin && component != observer.NodePlugin {
		return
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name != component || c.State.Running == nil || !l.begin(c.ContainerID) {
			continue
		}
		pod := pod.DeepCopy()
		go func() {
			// A log that ends before its container does is asked for again when the pod
			// changes next: a cut network ends it, and a node that comes back changes its pods.
			_ = l.read(ctx, pod, component, c.ContainerID, &corev1.PodLogOptions{
				Container: component,
				Follow:    true,
				SinceTime: &metav1.Time{Time: l.from.Add(-time.Second)},
			})
			l.pause(ctx)
			l.end(c.ContainerID)
		}()
	}
}

func (l *LogBook) begin(container string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading[container] {
		return false
	}
	l.reading[container] = true
	return true
}

func (l *LogBook) end(container string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reading, container)
}

// read keeps the calls of one log until it ends.
func (l *LogBook) read(ctx context.Context, pod *corev1.Pod, component, container string, options *corev1.PodLogOptions) error {
	stream, err := l.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	return parseCalls(stream, component, pod.Spec.NodeName, func(line string, c Call) { l.keep(container+line, c) })
}

func (l *LogBook) keep(line string, c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known[line] {
		l.known[line] = true
		l.calls = append(l.calls, c)
	}
}

// CatchUp reads what the plug-ins that can be reached have logged until now, so that
// no call that has ended is missing.
func (l *LogBook) CatchUp(ctx context.Context, since time.Time) {
	pods, err := l.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: observer.DriverSelector})
	if err != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		component := pod.Labels[observer.ComponentLabel]
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == component && c.State.Running != nil && observer.IsReady(pod) {
				// What cannot be read now was read before, as far as it was there.
				reading, cancel := context.WithTimeout(ctx, logTimeout)
				_ = l.read(reading, pod, component, c.ContainerID, &corev1.PodLogOptions{
					Container: component, SinceTime: &metav1.Time{Time: since.Add(-time.Second)},
				})
				cancel()
			}
		}
	}
}

// CallsSince are the calls that began at that time or later, in the order of their
// beginning.
func (l *LogBook) CallsSince(since time.Time) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Call
	for _, c := range l.calls {
		if !c.Start.Before(since) {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b Call) int { return a.Start.Compare(b.Start) })
	return found
}
