package registrar

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The pauses between two new registrations, or two tries to look, while the driver stays missing.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// PresenceOptions of a Presence.
type PresenceOptions struct {
	// Client reads at the API server.
	Client client.WithWatch
	// NodeName is the Node's and the CSINode's name, and the driver's node ID.
	NodeName string
	// DriverName as the CSINode lists it.
	DriverName string
	// Registered returns nil while the kubelet counts the plug-in as registered, and Again has it register it anew.
	Registered func() error
	Again      func()
	// Missing is told when the driver is missing, before Again is called; nil for nobody.
	Missing func(message string)
	// Clock paces the tries; nil for the real one.
	Clock clock.WithTicker
}

// Presence watches the Node's CSINode. The kubelet writes the driver into it when the plug-in registers and
// does not look again: where somebody deletes the object, or the entry, no pod with a volume would be scheduled to
// the node or attached there any more. So the plug-in registers once more.
type Presence struct{ options PresenceOptions }

// NewPresence returns a Presence.
func NewPresence(options PresenceOptions) *Presence {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Missing == nil {
		options.Missing = func(string) {}
	}
	return &Presence{options: options}
}

// NeedLeaderElection tells the manager that every node looks after its own.
func (p *Presence) NeedLeaderElection() bool { return false }

// Start watches until ctx ends.
func (p *Presence) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	pause := firstPause
	for ctx.Err() == nil {
		version, missing, err := p.look(ctx)
		switch {
		case err != nil:
			log.Error(err, "the CSINode cannot be looked at", "retryIn", pause.String())
		case missing != "":
			log.Info("the driver is missing from the CSINode; registering once more", "reason", missing)
			p.options.Missing(missing)
			p.options.Again()
		default:
			pause = firstPause
			if err := p.awaitChange(ctx, version); err != nil {
				log.Error(err, "the CSINode cannot be watched", "retryIn", pause.String())
				break
			}
			continue
		}
		p.sleep(ctx, pause)
		pause = min(2*pause, lastPause)
	}
	return nil
}

// look returns why the driver counts as missing, or the version of the CSINode from which to watch.
func (p *Presence) look(ctx context.Context) (version, missing string, err error) {
	// Asked first: the kubelet writes the entry before it says that it has registered the plug-in.
	registered := p.options.Registered() == nil
	found := &storagev1.CSINode{}
	err = p.options.Client.Get(ctx, client.ObjectKey{Name: p.options.NodeName}, found)
	if client.IgnoreNotFound(err) != nil {
		return "", "", fmt.Errorf("get CSINode: %w", err)
	}
	listed := slices.ContainsFunc(found.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == p.options.DriverName && d.NodeID == p.options.NodeName
	})
	if listed || !registered {
		return found.ResourceVersion, "", nil
	}
	missing = fmt.Sprintf("CSINode %s does not list driver %s", p.options.NodeName, p.options.DriverName)
	if err == nil {
		return "", missing, nil
	}
	// Without a Node the kubelet cannot make a CSINode, and would refuse the plug-in.
	err = p.options.Client.Get(ctx, client.ObjectKey{Name: p.options.NodeName}, &corev1.Node{})
	if apierrors.IsNotFound(err) {
		return "", "", fmt.Errorf("there is no CSINode, and no Node to make one for: %w", err)
	}
	if err != nil {
		return "", "", fmt.Errorf("get Node: %w", err)
	}
	return "", "there is no CSINode " + p.options.NodeName, nil
}

// awaitChange returns when something has happened to the CSINode, or the watch has ended.
func (p *Presence) awaitChange(ctx context.Context, version string) error {
	watcher, err := p.options.Client.Watch(ctx, &storagev1.CSINodeList{}, client.MatchingFields{"metadata.name": p.options.NodeName},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
	if err != nil {
		return fmt.Errorf("watch CSINode: %w", err)
	}
	defer watcher.Stop()
	select {
	case <-ctx.Done():
	case event, open := <-watcher.ResultChan():
		if open && event.Type == watch.Error && !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
			return fmt.Errorf("watch CSINode: %w", apierrors.FromObject(event.Object))
		}
	}
	return nil
}

func (p *Presence) sleep(ctx context.Context, pause time.Duration) {
	timer := p.options.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
