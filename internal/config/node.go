package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Values of --persistent-reservations.
const (
	ReservationsAuto     = "auto"
	reservationsDisabled = "disabled"
)

// Node are the settings of `azuredisk node`.
type Node struct {
	Common
	// NodeName is the Node's name.
	NodeName string
	// Endpoint is the CSI socket.
	Endpoint string
	// KubeletDir is the kubelet's root directory.
	KubeletDir string
	// StateDir is where the node keeps what its mounts do not show; "" for a directory beside the
	// socket.
	StateDir string
	// Register lets the plug-in register itself with the kubelet.
	Register bool
	// HeartbeatInterval, ReplicatedHeartbeatInterval and ProbedHeartbeatInterval are the intervals
	// of the heartbeat.
	HeartbeatInterval, ReplicatedHeartbeatInterval, ProbedHeartbeatInterval time.Duration
	// MetadataSources are where the node learns which VM it is, in order.
	MetadataSources []string
	// IMDSEndpoint is the URL of the instance metadata service.
	IMDSEndpoint string
	// MaxVolumes is the number of volumes that the node takes; with 0 the controller finds it out.
	MaxVolumes int64
	// ReservedSlots are left to disks that are not the driver's.
	ReservedSlots int64
	// CapacityWait is how long the registration waits for the controller.
	CapacityWait time.Duration
	// DefaultMaxVolumes is taken where the controller does not say, or Azure does not list the VM's
	// size.
	DefaultMaxVolumes int64
	// AttachRequired is the CSIDriver's: a volume is published before it is staged. Without it a
	// stage waits for the publish.
	AttachRequired bool
	// Expansion declares that volumes can be expanded while they are in use.
	Expansion bool
	// DrainTimeout bounds how long a plug-in that is told to stop waits for the volumes of a node
	// that is leaving.
	DrainTimeout time.Duration
	// DeviceLinks is the directory of the links in which udev shows the LUNs of disks.
	DeviceLinks string
	// RescanInterval is how often the bus is rescanned while a device is awaited.
	RescanInterval time.Duration
	// MaxFormatsAndChecks is how many filesystems are made or checked in full at once; 0 for any
	// number.
	MaxFormatsAndChecks int
	// PersistentReservations is auto or disabled: whether shared disks are reserved.
	PersistentReservations string
	// NVMeReservations lets the node reserve shared disks that are NVMe namespaces.
	NVMeReservations bool
	// DiskMetrics serves the limits and the kernel's counters of the volumes in use.
	DiskMetrics bool
}

// AddFlags registers the settings with their defaults.
func (n *Node) AddFlags(flags *pflag.FlagSet) {
	n.Common.AddFlags(flags)
	flags.StringVar(&n.NodeName, "node-name", "", "name of the Node that this plug-in runs on (required)")
	flags.StringVar(&n.Endpoint, "endpoint", "unix:///var/lib/kubelet/plugins/"+DriverName+"/csi.sock",
		"CSI `endpoint`; the kubelet must see the socket under the same path")
	flags.StringVar(&n.KubeletDir, "kubelet-dir", "/var/lib/kubelet",
		"root `directory` of the kubelet, as its --root-dir; not a link")
	flags.StringVar(&n.StateDir, "state-dir", "",
		"`directory` that outlives the pod, for what the node's mounts do not show; empty for staged/ beside the CSI socket")
	flags.BoolVar(&n.Register, "register", true, "register with the kubelet")
	flags.DurationVar(&n.HeartbeatInterval, "heartbeat-interval", 30*time.Second, "time between heartbeats")
	flags.DurationVar(&n.ReplicatedHeartbeatInterval, "replicated-heartbeat-interval", 2*time.Second,
		"time between heartbeats while a volume with replicas is in use here")
	flags.DurationVar(&n.ProbedHeartbeatInterval, "probed-heartbeat-interval", 5*time.Minute,
		"time between heartbeats, instead of both, while the controller's probes reach the node: the controller then requests a heartbeat when a probe fails")
	flags.StringSliceVar(&n.MetadataSources, "node-metadata-sources", []string{"imds", "labels"},
		"where the node learns which VM it is, in order: imds (instance metadata), labels (of the Node, and its provider ID)")
	flags.StringVar(&n.IMDSEndpoint, "imds-endpoint", "http://169.254.169.254",
		"`URL` of the instance metadata service; never asked through a proxy")
	flags.Int64Var(&n.MaxVolumes, "max-volumes", 0,
		"volumes that the node takes; 0 for the number of data disks that Azure allows the VM")
	flags.Int64Var(&n.ReservedSlots, "reserved-volume-slots", 0, "data disks of the VM that are left to others than this driver")
	flags.DurationVar(&n.CapacityWait, "capacity-wait", 10*time.Second,
		"how long the registration waits for the controller to find out what Azure allows")
	flags.Int64Var(&n.DefaultMaxVolumes, "default-max-volumes", 16,
		"data disks of a VM whose size Azure does not list, and where the controller does not find out in time")
	flags.BoolVar(&n.AttachRequired, "attach-required", true,
		"as in the CSIDriver object: Kubernetes has volumes attached before the node is asked for them; with false the node waits for the controller")
	flags.BoolVar(&n.Expansion, "enable-expansion", false,
		"grow volumes while they are in use, when the controller has grown the disk")
	flags.DurationVar(&n.DrainTimeout, "drain-timeout", 25*time.Second,
		"how long a plug-in that is told to stop waits for the volumes of a node that is drained or shut down; less than the pod's grace period. 0s for not at all")
	flags.StringVar(&n.DeviceLinks, "device-links", "/dev/disk/azure",
		"`directory` of the links that tell the LUNs of disks: data/by-lun/N and scsi1/lunN below it")
	flags.DurationVar(&n.RescanInterval, "device-rescan-interval", 2*time.Second,
		"how often the bus is rescanned while a device is awaited and no event comes")
	flags.IntVar(&n.MaxFormatsAndChecks, "max-formats-and-checks", 2,
		"filesystems that are made or checked in full at once, because each takes memory, and more for a larger disk; 0 for any number. A check of a clean filesystem does not count")
	flags.StringVar(&n.PersistentReservations, "persistent-reservations", ReservationsAuto,
		"auto: reserve a shared disk for the node that uses its filesystem, so that a lost node is fenced by the disk; disabled: for no volume")
	flags.BoolVar(&n.NVMeReservations, "nvme-reservations", false,
		"reserve also shared disks that this node has as NVMe namespaces; no NVMe disk of Azure has passed the driver's tests of reservations yet")
	flags.BoolVar(&n.DiskMetrics, "disk-metrics", false,
		"serve metrics of the limits of each volume in use here and of the VM, and of the requests to the volume's device")
}

// Validate returns all faults.
func (n *Node) Validate() error {
	faults := []error{
		n.Common.Validate(),
		faultIf(n.NodeName == "", "node-name: must not be empty"),
		faultIf(!strings.HasPrefix(n.Endpoint, "unix:///"), "endpoint: %q must be unix:// and an absolute path", n.Endpoint),
		faultIf(!filepath.IsAbs(n.KubeletDir), "kubelet-dir: %q must be an absolute path", n.KubeletDir),
		faultIf(!filepath.IsAbs(n.DeviceLinks), "device-links: %q must be an absolute path", n.DeviceLinks),
		faultIf(n.StateDir != "" && !filepath.IsAbs(n.StateDir), "state-dir: %q must be an absolute path", n.StateDir),
		faultIf(n.ReplicatedHeartbeatInterval < time.Second, "replicated-heartbeat-interval: %s must be at least 1s",
			n.ReplicatedHeartbeatInterval),
		faultIf(n.HeartbeatInterval > nodehealth.LongestPromise,
			"heartbeat-interval: %s must be at most %s: no longer promise is believed", n.HeartbeatInterval,
			nodehealth.LongestPromise),
		faultIf(n.HeartbeatInterval < n.ReplicatedHeartbeatInterval,
			"heartbeat-interval: %s must be at least replicated-heartbeat-interval (%s)", n.HeartbeatInterval,
			n.ReplicatedHeartbeatInterval),
		faultIf(n.ProbedHeartbeatInterval < n.ReplicatedHeartbeatInterval ||
			n.ProbedHeartbeatInterval > nodehealth.LongestPromise,
			"probed-heartbeat-interval: %s must be at least replicated-heartbeat-interval (%s) and at most %s: no longer promise is believed",
			n.ProbedHeartbeatInterval, n.ReplicatedHeartbeatInterval, nodehealth.LongestPromise),
		faultIf(n.CapacityWait < 0 || n.CapacityWait > time.Minute,
			"capacity-wait: %s must be 0s to 1m, within the kubelet's own patience", n.CapacityWait),
		faultIf(n.DrainTimeout < 0, "drain-timeout: %s must not be negative", n.DrainTimeout),
		faultIf(n.RescanInterval < 100*time.Millisecond, "device-rescan-interval: %s must be at least 100ms", n.RescanInterval),
		faultIf(n.MaxFormatsAndChecks < 0, "max-formats-and-checks: %d must not be negative; 0 is no limit",
			n.MaxFormatsAndChecks),
		faultIf(n.MaxVolumes < 0, "max-volumes: %d must not be negative", n.MaxVolumes),
		faultIf(n.ReservedSlots < 0, "reserved-volume-slots: %d must not be negative", n.ReservedSlots),
		faultIf(n.DefaultMaxVolumes < 1, "default-max-volumes: %d must be at least 1", n.DefaultMaxVolumes),
		faultIf(n.PersistentReservations != ReservationsAuto && n.PersistentReservations != reservationsDisabled,
			"persistent-reservations: %q must be auto or disabled", n.PersistentReservations),
		n.validateSources(),
	}
	if u, err := url.Parse(n.IMDSEndpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		faults = append(faults, fmt.Errorf("imds-endpoint: %q must be a URL as in http://169.254.169.254", n.IMDSEndpoint))
	}
	return errors.Join(faults...)
}

func (n *Node) validateSources() error {
	faults := []error{faultIf(len(n.MetadataSources) == 0, "node-metadata-sources: must name imds, labels or both")}
	for _, source := range n.MetadataSources {
		faults = append(faults, faultIf(source != "imds" && source != "labels",
			"node-metadata-sources: %q must be imds or labels", source))
	}
	return errors.Join(faults...)
}

// SocketPath is the path of the CSI socket.
func (n *Node) SocketPath() string { return strings.TrimPrefix(n.Endpoint, "unix://") }

// RecordsDir is where the node keeps its records.
func (n *Node) RecordsDir() string {
	if n.StateDir != "" {
		return n.StateDir
	}
	return filepath.Join(filepath.Dir(n.SocketPath()), "staged")
}

// RegistrationDir is where the kubelet looks for plug-ins.
func (n *Node) RegistrationDir() string { return filepath.Join(n.KubeletDir, "plugins_registry") }
