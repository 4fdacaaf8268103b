// Package registrar registers the CSI node plug-in with the kubelet: the job of the
// sidecar node-driver-registrar, built in.
//
// The kubelet watches a directory for sockets. It calls GetInfo at the plug-in's socket to identify
// the plug-in, calls the plug-in's NodeGetInfo, and reports the result with
// NotifyRegistrationStatus. The socket exists exactly while the plug-in can serve: the Registrar
// creates it when Options.Await has returned, creates it again when the directory is wiped, and
// removes it when the process ends. Only a new socket makes the kubelet register the plug-in again
// (Again); Presence needs that when the CSINode does not list the driver any more.
package registrar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/unixsocket"
)

// csiVersion is the version of CSI, which the kubelet compares with its own versions.
const csiVersion = "1.0.0"

// checkInterval is how often the Registrar checks that the socket exists, even if no event says
// that it was removed.
const checkInterval = 30 * time.Second

// Options of a Registrar.
type Options struct {
	// DriverName as in "disk.csi.azure.com".
	DriverName string
	// Socket is the path of the plug-in's CSI socket as the kubelet sees it.
	Socket string
	// Dir is the kubelet's directory of registration sockets, as in
	// "/var/lib/kubelet/plugins_registry".
	Dir string
	// Await returns when the plug-in can serve the kubelet's calls; nil if it can from the start.
	Await func(context.Context) error
	// Notify is called with the kubelet's answer; nil for no call. message is empty if the kubelet
	// registered the plug-in.
	Notify func(registered bool, message string)
	// Clock sets the interval between checks of the socket; nil for the real one.
	Clock clock.WithTicker
}

// Registrar serves the kubelet's plug-in registration.
type Registrar struct {
	registration.UnimplementedRegistrationServer
	options Options
	// refused receives the kubelet's message when it did not register the plug-in.
	refused chan string
	// again requests a new socket.
	again chan struct{}

	mu         sync.Mutex
	registered bool
}

// New returns a Registrar.
func New(options Options) *Registrar {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Registrar{
		options: options,
		refused: make(chan string, 1),
		again:   make(chan struct{}, 1),
	}
}

// SocketPath is where the registration socket is.
func (r *Registrar) SocketPath() string {
	return filepath.Join(r.options.Dir, r.options.DriverName+"-reg.sock")
}

// Registered returns nil once the kubelet has registered the plug-in.
func (r *Registrar) Registered() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.registered {
		return errors.New("the kubelet has not registered the plug-in yet")
	}
	return nil
}

// Again makes a new socket. Because of that the kubelet unregisters the plug-in and registers it
// again. Again does not wait for that, and mounted volumes are not affected. Until the kubelet has
// answered, Registered fails.
func (r *Registrar) Again() {
	r.mu.Lock()
	r.registered = false
	r.mu.Unlock()
	select {
	case r.again <- struct{}{}:
	default: // already requested
	}
}

// NeedLeaderElection tells the manager that every node registers.
func (r *Registrar) NeedLeaderElection() bool { return false }

// Start serves until ctx ends. It returns an error if the kubelet refuses the plug-in, because the
// kubelet tries again only after it sees a new socket.
func (r *Registrar) Start(ctx context.Context) error {
	if r.options.Await != nil {
		if err := r.options.Await(ctx); err != nil {
			return ignoreEnd(ctx, fmt.Errorf("wait to register: %w", err))
		}
	}
	for ctx.Err() == nil {
		if err := r.serve(ctx); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
	return nil
}

// serve serves on one socket and returns nil when that socket was removed or replaced, or ctx has
// ended.
func (r *Registrar) serve(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	listener, err := unixsocket.Listen(ctx, r.SocketPath())
	if err != nil {
		return fmt.Errorf("make registration socket: %w", err)
	}
	ours, err := os.Lstat(r.SocketPath())
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("read the file status of the registration socket: %w", err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("waiting for the kubelet", "socket", r.SocketPath())
	// The watch starts before the first check of the socket, so that a removal is always seen.
	events, stopWatch := watchDir(r.options.Dir)
	defer stopWatch()
	ticker := r.options.Clock.NewTicker(checkInterval)
	defer ticker.Stop()
	for r.inPlace(ours) {
		select {
		case <-ctx.Done():
			server.GracefulStop()
			return <-served
		case message := <-r.refused:
			server.GracefulStop()
			return fmt.Errorf("the kubelet refused the plug-in: %s", message)
		case err := <-served:
			return fmt.Errorf("serve registration: %w", err)
		case <-r.again:
			log.Info("registering again")
			server.Stop()
			return <-served
		case <-events:
		case <-ticker.C():
		}
	}
	log.Info("the registration socket was removed; creating it again")
	server.Stop()
	return <-served
}

func (r *Registrar) inPlace(ours os.FileInfo) bool {
	info, err := os.Lstat(r.SocketPath())
	return err == nil && os.SameFile(info, ours)
}

// watchDir returns a channel with the events of dir, also of its own removal. Without inotify the
// channel is nil, and the caller's ticker replaces it.
func watchDir(dir string) (events <-chan fsnotify.Event, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}
	if err := watcher.Add(dir); err != nil {
		_ = watcher.Close()
		return nil, func() {}
	}
	return watcher.Events, func() { _ = watcher.Close() }
}

// GetInfo tells the kubelet which plug-in serves the socket.
func (r *Registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.options.DriverName,
		Endpoint:          r.options.Socket,
		SupportedVersions: []string{csiVersion},
	}, nil
}

// NotifyRegistrationStatus receives the result of the registration from the kubelet.
func (r *Registrar) NotifyRegistrationStatus(_ context.Context,
	status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.mu.Lock()
	r.registered = status.GetPluginRegistered()
	r.mu.Unlock()
	if r.options.Notify != nil {
		r.options.Notify(status.GetPluginRegistered(), status.GetError())
	}
	if !status.GetPluginRegistered() {
		select {
		case r.refused <- status.GetError():
		default:
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
