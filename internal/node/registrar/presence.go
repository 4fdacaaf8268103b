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

// The pauses between two registrations, or two attempts to read the CSINode, while the driver is
// missing from it.
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
	// Registered returns nil while the kubelet treats the plug-in as registered. Again makes the
	// kubelet register it again.
	Registered func() error
	Again      func()
	// Missing is called when the driver is missing, before Again; nil for no call.
	Missing func(message string)
	// Clock sets the pauses between the attempts; nil for the real one.
	Clock clock.WithTicker
}

// Presence watches the Node's CSINode. The kubelet writes the driver into it only when the plug-in
// registers. If a user deletes the object or the entry, no pod with a volume is scheduled to the
// node and no volume is attached there. Therefore Presence makes the plug-in register again.
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

// NeedLeaderElection tells the manager that the plug-in of every node watches its own CSINode.
func (p *Presence) NeedLeaderElection() bool { return false }

// Start watches until ctx ends.
func (p *Presence) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	pause := firstPause
	for ctx.Err() == nil {
		version, missing, err := p.look(ctx)
		switch {
		case err != nil:
			log.Error(err, "cannot read the CSINode", "retryIn", pause.String())
		case missing != "":
			log.Info("the driver is missing from the CSINode; registering again", "reason", missing)
			p.options.Missing(missing)
			p.options.Again()
		default:
			pause = firstPause
			if err := p.awaitChange(ctx, version); err != nil {
				log.Error(err, "cannot watch the CSINode", "retryIn", pause.String())
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
	// Call Registered first: the kubelet writes the entry before it says that it has registered the
	// plug-in.
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
	// Without a Node the kubelet cannot create a CSINode, and would refuse the plug-in.
	err = p.options.Client.Get(ctx, client.ObjectKey{Name: p.options.NodeName}, &corev1.Node{})
	if apierrors.IsNotFound(err) {
		return "", "", fmt.Errorf("CSINode %s does not exist, and the kubelet cannot create it without the Node: %w",
			p.options.NodeName, err)
	}
	if err != nil {
		return "", "", fmt.Errorf("get Node: %w", err)
	}
	return "", fmt.Sprintf("CSINode %s does not exist", p.options.NodeName), nil
}

// awaitChange returns when the CSINode has changed, or the watch has ended.
func (p *Presence) awaitChange(ctx context.Context, version string) error {
	watcher, err := p.options.Client.Watch(ctx, &storagev1.CSINodeList{},
		client.MatchingFields{"metadata.name": p.options.NodeName},
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
