// Package state is what a playground keeps in its state folder, and what the
// supervisor and the commands tell each other.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/controlplane"
	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/process"
	"github.com/azuredisk-csi/azuredisk/playground/programs"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// DefaultDir is the state folder unless $PLAYGROUND_STATE or a flag says otherwise.
const DefaultDir = "/var/lib/azuredisk-playground"

// Dir is a state folder.
type Dir string

// FromEnvironment is $PLAYGROUND_STATE, or DefaultDir.
func FromEnvironment() Dir {
	if dir := os.Getenv("PLAYGROUND_STATE"); dir != "" {
		return Dir(dir)
	}
	return DefaultDir
}

func (d Dir) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

// Options are the choices with which the playground was brought up.
func (d Dir) Options() string { return d.path("options.json") }

// Record names the supervisor's process.
func (d Dir) Record() string { return d.path("supervisor.json") }

// Socket is where the supervisor listens.
func (d Dir) Socket() string { return d.path("control.sock") }

// Kubeconfig is the administrator's, for use on the host.
func (d Dir) Kubeconfig() string { return d.path("kubeconfig") }

// Program is the playground's own link to a program.
func (d Dir) Program(name string) string { return d.path("bin", name) }

// Namespaces holds the network namespaces.
func (d Dir) Namespaces() string { return d.path("netns") }

// ControlPlane holds etcd's data and the keys.
func (d Dir) ControlPlane(elements ...string) string {
	return d.path(append([]string{"control-plane"}, elements...)...)
}

// Logs holds the logs, those of the nodes in folders of their names. They are kept
// until the next playground.
func (d Dir) Logs(elements ...string) string {
	return d.path(append([]string{"logs"}, elements...)...)
}

// DirectoryCA verifies azuresim over TLS, with the profile of AKS.
func (d Dir) DirectoryCA() string { return d.path("directory-ca.crt") }

// Azure holds the state of azuresim.
func (d Dir) Azure(elements ...string) string {
	return d.path(append([]string{"azuresim"}, elements...)...)
}

// Node holds what belongs to one node.
func (d Dir) Node(name string, elements ...string) string {
	return d.path(append([]string{"nodes", name}, elements...)...)
}

// Clear removes everything but the logs.
func (d Dir) Clear() error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failures []error
	for _, e := range entries {
		if e.Name() != "logs" {
			failures = append(failures, os.RemoveAll(d.path(e.Name())))
		}
	}
	return errors.Join(failures...)
}

// Options are the choices with which a playground is brought up.
type Options struct {
	Nodes int `json:"nodes"`
	// Zones is how many zones the nodes are in.
	Zones  int          `json:"zones"`
	Subnet netip.Prefix `json:"subnet"`
	// Profile is the kind of cluster.
	Profile aks.Profile `json:"profile,omitempty"`
	// Kubernetes is the version of Kubernetes.
	Kubernetes programs.Kubernetes `json:"kubernetes"`
	// APIPort is the port of the API server on 127.0.0.1; 0 takes a free one.
	APIPort int `json:"apiPort"`
	// Latency is azuresim's latency profile: realistic or fast.
	Latency string `json:"latency"`
	// NoQuotas switches off Azure's quotas at azuresim.
	NoQuotas bool `json:"noQuotas,omitempty"`
	// Seed makes azuresim's latencies repeatable.
	Seed int64 `json:"seed"`
	// Credentials are the driver's at azuresim.
	Credentials azure.Credentials `json:"credentials"`
	// PlainScheduler says that kube-scheduler never gets a configuration for the driver.
	PlainScheduler bool `json:"plainScheduler,omitempty"`
	// Extender is the scheduler extender that the default scheduler calls, or nil.
	Extender *controlplane.Extender `json:"extender,omitempty"`
	// Programs are the paths of all programs by name.
	Programs map[string]string `json:"programs"`
	// Pause is the image that holds pods' namespaces, DNS that of the name server.
	Pause images.Image `json:"pause"`
	DNS   images.Image `json:"dns"`
	// Driver is the driver's image and Sidecars are those beside it; the Ref is empty if
	// the driver is left out.
	Driver   images.Image   `json:"driver"`
	Sidecars []images.Image `json:"sidecars"`
	// SnapshotController is the image of the snapshot-controller and SnapshotCRDs the folder
	// of the definitions of its resources; empty if the driver is left out.
	SnapshotController images.Image `json:"snapshotController"`
	SnapshotCRDs       string       `json:"snapshotCRDs"`
	// Snapshotter is the containerd snapshotter of all nodes.
	Snapshotter string `json:"snapshotter"`
	// Preloaded is the state of a containerd that has all of these; every node begins
	// with it.
	Preloaded string `json:"preloaded"`
}

// Images are all images that nodes begin with.
func (o Options) Images() []images.Image {
	list := []images.Image{o.Pause, o.DNS}
	if o.Driver.Ref != "" {
		list = append(append(list, o.Driver, o.SnapshotController), o.Sidecars...)
	}
	return list
}

// Plan is the plan that the options describe.
func (o Options) Plan() (topology.Plan, error) {
	plan, err := topology.New(o.Nodes, o.Zones, o.Subnet)
	if err == nil && o.Profile != "" {
		plan = plan.OnAKS()
	}
	return plan, err
}

// Status is what the supervisor knows about the playground.
type Status struct {
	// Phase is Starting, Ready, Failed or Stopping.
	Phase   string    `json:"phase"`
	Error   string    `json:"error,omitempty"`
	Started time.Time `json:"started"`
	// Server is the API server's URL on the host.
	Server string `json:"server,omitempty"`
	// Azure is the ARM endpoint as pods reach it, AzureHost as the host does.
	Azure     string `json:"azure,omitempty"`
	AzureHost string `json:"azureHost,omitempty"`
	// AzureAdmin is the URL of azuresim's admin API as the host reaches it, without a path.
	AzureAdmin string              `json:"azureAdmin,omitempty"`
	Components []process.Component `json:"components"`
	Nodes      []NodeStatus        `json:"nodes"`
	// Cgroups says which version of control groups the machine has.
	Cgroups string `json:"cgroups"`
	// SupervisorPID is the supervisor's process number in its PID namespace, like all
	// other PIDs of a status.
	SupervisorPID int `json:"supervisorPID"`
}

// The phases of a playground.
const (
	Starting = "Starting"
	Ready    = "Ready"
	Failed   = "Failed"
	Stopping = "Stopping"
)

// NodeStatus is a machine as the supervisor sees it.
type NodeStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Zone    string `json:"zone"`
	// PID is that of the machine's first process, 0 if the power is off.
	PID       int  `json:"pid"`
	Power     bool `json:"power"`
	Connected bool `json:"connected"`
	// Frozen says that the machine stands still.
	Frozen bool `json:"frozen"`
}

// Freeze says when a machine stood still.
type Freeze struct {
	// Announced is when the event was made that announced it; zero for none.
	Announced time.Time `json:"announced"`
	// From Frozen to Thawed all processes and the network stood still.
	Frozen time.Time `json:"frozen"`
	Thawed time.Time `json:"thawed"`
}

// Event is one line of progress.
type Event struct {
	// Elapsed is the time since the playground was asked to come up, in seconds.
	Elapsed float64 `json:"elapsed"`
	Message string  `json:"message"`
}

// WriteJSON writes the value to the file, all of it or nothing.
func WriteJSON(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	partial := file + ".partial"
	if err := os.WriteFile(partial, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(partial, file)
}

// ReadJSON reads the value from the file.
func ReadJSON(file string, value any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// Supervisor returns the recorded supervisor and whether it runs.
func (d Dir) Supervisor() (process.Identity, bool, error) {
	var id process.Identity
	err := ReadJSON(d.Record(), &id)
	if errors.Is(err, os.ErrNotExist) {
		return id, false, nil
	}
	return id, err == nil && id.Alive(), err
}
