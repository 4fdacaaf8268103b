// Package supervisor is the process that owns a playground: every program, mount,
// network namespace and machine of it is a descendant of this process or lives in
// its namespaces, so that the end of this process is the end of them all.
//
// It runs as the only child of the first process of a PID namespace and in a mount
// namespace of its own. It answers the commands on a Unix socket.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/controlplane"
	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/machine"
	"github.com/azuredisk-csi/azuredisk/playground/network"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Supervisor is the running playground.
type Supervisor struct {
	dir         state.Dir
	opts        state.Options
	plan        topology.Plan
	cgroups     host.Cgroups
	log         *slog.Logger
	started     time.Time
	credentials controlplane.Credentials
	events      *eventLog

	// release says that this playground does not use the machine any more.
	release      func()
	lab          *network.Lab
	controlPlane *controlplane.ControlPlane
	proxies      *proxies
	machines     map[string]*machine.Machine

	mu        sync.Mutex
	phase     string
	failure   error
	server    string
	connected map[string]bool
	// frozen has a channel for each node that is frozen, which is closed when it is not any more.
	frozen map[string]chan struct{}
	locks  map[string]*sync.Mutex
	// taken are the listeners on each node's ports, and pools the settings of node pools, with AKS.
	taken map[string][]net.Listener
	pools map[string]aks.Settings
	azure *azure.Azure
	// Where azuresim answers: ARM for pods, ARM and the admin API for the host.
	armURL, armHostURL, adminURL string
}

// The control group of the control plane and of azuresim. A managed cluster has machines of their
// own for both. Without a larger share of the processors each would get as much as one node, and an
// API server that is late changes what the nodes do: a kubelet asks for a claim before the node
// authorizer knows of the pod, and tries again after 10 to 15 s.
const (
	ownGroup  = "supervisor"
	ownShares = 20
)

// Run brings the playground up, serves commands until the context ends, and takes
// it down in order.
func Run(ctx context.Context, dir state.Dir, log *slog.Logger) error {
	s := &Supervisor{
		dir:       dir,
		log:       log,
		started:   time.Now(),
		events:    newEventLog(),
		phase:     state.Starting,
		machines:  map[string]*machine.Machine{},
		connected: map[string]bool{},
		frozen:    map[string]chan struct{}{},
		locks:     map[string]*sync.Mutex{},
		taken:     map[string][]net.Listener{},
		pools:     map[string]aks.Settings{},
	}
	if err := s.prepare(); err != nil {
		return err
	}
	listener, err := net.Listen("unix", dir.Socket())
	if err != nil {
		return fmt.Errorf("listen for commands: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("commands are not served any more", "error", err)
		}
	}()
	if err := s.up(ctx); err != nil {
		s.setPhase(state.Failed, err)
		log.Error("the playground did not come up", "error", err)
	} else {
		go s.followAzure(ctx)
		s.setPhase(state.Ready, nil)
	}
	<-ctx.Done()
	s.setPhase(state.Stopping, nil)
	s.down()
	_ = server.Close()
	return nil
}

// prepare reads the options and sets up the namespaces that this process is in.
func (s *Supervisor) prepare() error {
	if err := state.ReadJSON(s.dir.Options(), &s.opts); err != nil {
		return err
	}
	var err error
	if s.plan, err = s.opts.Plan(); err != nil {
		return err
	}
	if s.cgroups, err = host.DetectCgroups(string(s.dir)); err != nil {
		return err
	}
	s.credentials = controlplane.Credentials{
		Dir:     s.dir.ControlPlane("credentials"),
		Kubeadm: s.opts.Programs["kubeadm"],
		Version: s.opts.Kubernetes.Version,
		Plan:    s.plan,
	}
	// The host's later mounts are seen here; none of those made here is seen there.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts from the host's: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := s.cgroups.Join(ownGroup); err != nil {
		return err
	}
	return s.cgroups.Prefer(ownGroup, ownShares)
}

func (s *Supervisor) up(ctx context.Context) error {
	s.progress("Kubernetes %s, %s, %d nodes in %s", s.opts.Kubernetes.Version, s.cgroups.Describe(), len(s.plan.Nodes),
		s.plan.Subnet)
	release, notes, err := host.Machine().Use()
	if err != nil {
		return err
	}
	s.release = release
	for _, note := range notes {
		s.progress("%s", note)
	}
	for _, step := range []func(context.Context) error{
		s.buildNetwork, s.startControlPlaneAndNodes, s.openAPI, s.populate, s.becomeAKS, s.waitForNodes,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Supervisor) buildNetwork(context.Context) error {
	var err error
	if s.lab, err = network.NewLab(s.dir.Namespaces(), s.plan.Subnet); err != nil {
		return err
	}
	for name, address := range map[string]netip.Addr{
		"cp": s.plan.ControlPlane(), "azure": s.plan.Cloud(),
	} {
		ns, err := s.lab.Plug(name, address)
		if err != nil {
			return err
		}
		for _, n := range s.plan.Nodes {
			if err := ns.Route(n.PodNet, n.Address); err != nil {
				return err
			}
		}
		if name == "cp" {
			if err := ns.RouteDefault(s.plan.Cloud()); err != nil {
				return err
			}
		}
	}
	s.proxies = newProxies(s.log)
	return nil
}

// startControlPlaneAndNodes starts both at the same time: the nodes need longer to
// start containerd than the API server needs to become ready.
func (s *Supervisor) startControlPlaneAndNodes(ctx context.Context) error {
	if err := s.credentials.Make(ctx); err != nil {
		return err
	}
	s.progress("keys and certificates are made")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.startControlPlane(ctx) })
	group.Go(func() error {
		if err := s.startAzure(ctx); err != nil {
			return err
		}
		return s.bootNodes(ctx)
	})
	return group.Wait()
}

func (s *Supervisor) startControlPlane(ctx context.Context) error {
	ns, err := s.lab.Namespace("cp")
	if err != nil {
		return err
	}
	controlPlane, err := controlplane.Start(ctx, controlplane.Options{
		Dir:         s.dir.ControlPlane(),
		Logs:        s.dir.Logs(),
		Plan:        s.plan,
		Namespace:   ns,
		Programs:    s.opts.Programs,
		Credentials: s.credentials,
		Extender:    s.opts.Extender,
		Log:         s.log,
	})
	s.mu.Lock()
	s.controlPlane = controlPlane
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.progress("the API server is ready")
	return nil
}

func (s *Supervisor) bootNodes(ctx context.Context) error {
	for _, n := range s.plan.Nodes {
		spec := s.machineSpec(n)
		if err := spec.Write(s.plan); err != nil {
			return fmt.Errorf("set up the disk of %s: %w", n.Name, err)
		}
		if err := images.Install(s.opts.Preloaded, spec.ContainerdState()); err != nil {
			return fmt.Errorf("give %s its images: %w", n.Name, err)
		}
		s.mu.Lock()
		s.machines[n.Name] = machine.New(spec, s.log)
		s.mu.Unlock()
		if err := s.boot(ctx, n); err != nil {
			return err
		}
	}
	s.progress("%d nodes are booting", len(s.plan.Nodes))
	return nil
}

func (s *Supervisor) machineSpec(n topology.Node) machine.Spec {
	spec := machine.Spec{
		Name:               n.Name,
		Address:            n.Address,
		PodNet:             n.PodNet,
		ClusterNet:         s.plan.PodNet,
		ServiceNet:         s.plan.ServiceNet,
		DNS:                s.plan.DNS(),
		ProviderID:         n.ProviderID(),
		Labels:             n.Labels(),
		Root:               s.dir.Node(n.Name, "root"),
		Disk:               s.dir.Node(n.Name, "disk"),
		Logs:               s.dir.Logs(n.Name),
		AzureDisks:         s.dir.Azure("vms", n.VM(), "dev", "disk", "azure"),
		Azuresim:           s.opts.Programs["azuresim"],
		GuestSocket:        azure.GuestSocket(s.dir.Azure()),
		KubernetesPrograms: filepath.Dir(s.opts.Programs["kubelet"]),
		ContainerdPrograms: filepath.Dir(s.opts.Programs["containerd"]),
		Kubeconfig:         s.credentials.Kubeconfig(n.Name),
		ProxyKubeconfig:    s.credentials.Kubeconfig("kube-proxy"),
		CA:                 s.credentials.PKI("ca.crt"),
		Cgroups:            s.cgroups,
		Snapshotter:        s.opts.Snapshotter,
		PauseImage:         s.opts.Pause.Ref,
	}
	if n.Pool != nil {
		spec.Taints = n.Pool.StartupTaints
	}
	return spec
}

// openAPI opens the API server to the host, on a loopback port.
func (s *Supervisor) openAPI(ctx context.Context) error {
	address := fmt.Sprintf("127.0.0.1:%d", s.opts.APIPort)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("open the API server to the host: %w", err)
	}
	s.proxies.serve(listener, s.controlPlane.Dial)
	server := "https://" + listener.Addr().String()
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	return s.writeKubeconfig(server)
}

// down takes everything down, the machines first: what they have mounted must still
// have its disks.
func (s *Supervisor) down() {
	var group errgroup.Group
	for _, m := range s.machines {
		group.Go(func() error { m.PowerOff(); return nil })
	}
	_ = group.Wait()
	s.mu.Lock()
	controlPlane, running := s.controlPlane, s.azure
	s.mu.Unlock()
	if running != nil {
		running.Stop(context.Background())
	}
	if controlPlane != nil {
		controlPlane.Stop(context.Background())
	}
	if s.proxies != nil {
		s.proxies.close()
	}
	if s.release != nil {
		s.release()
	}
}

func (s *Supervisor) setPhase(phase string, err error) {
	s.mu.Lock()
	s.phase, s.failure = phase, err
	s.mu.Unlock()
	if phase != state.Starting && phase != state.Stopping {
		s.events.close()
	}
}

func (s *Supervisor) progress(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	s.log.Info(message)
	s.events.add(state.Event{Elapsed: time.Since(s.started).Seconds(), Message: message})
}
