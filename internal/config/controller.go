package config

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// TagClusterID is the tag with the name of the cluster.
const TagClusterID = "kubernetes.io-cluster-id"

// mostTags is less than Azure allows, because the driver and the classes set tags as well.
const mostTags = 30

// How nodes are probed.
const (
	ProbeKubelet = "kubelet"
	ProbeNone    = "none"
)

// Controller are the settings of `azuredisk controller`.
type Controller struct {
	Common
	Cloud
	// Endpoint is the CSI socket.
	Endpoint string
	// AttachRequired is the CSIDriver's: Kubernetes says by VolumeAttachments where a volume is to
	// be published. Without it the pods do.
	AttachRequired bool
	// MaintenancePolicies are what to do before maintenance, by its kind.
	MaintenancePolicies map[string]string
	// ExtraTags are tags of all disks and snapshots that the driver creates.
	ExtraTags map[string]string
	// ClusterID is the value of the tag TagClusterID of the same; "" for none.
	ClusterID string
	// LeaderElection lets one of several replicas reconcile.
	LeaderElection bool
	// LeaderElectionNamespace holds the lease; "" for the pod's own.
	LeaderElectionNamespace string
	// LeaseDuration, RenewDeadline and RetryPeriod of the lease.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// CleanUpDelay is how long after its release a volume keeps its replicas.
	CleanUpDelay time.Duration
	// FailoverPatience is how long a node may take to answer a request for a heartbeat.
	FailoverPatience time.Duration
	// HeartbeatStaleAfter is the least age at which a node's heartbeat is stale.
	HeartbeatStaleAfter time.Duration
	// FailoverEnabled lets the controller fence nodes that are lost.
	FailoverEnabled bool
	// FailoverProbe is how nodes are probed: kubelet or none.
	FailoverProbe string
	// FailoverMassLossThreshold is the percentage of nodes above which a loss of so many at once is
	// not believed.
	FailoverMassLossThreshold int
	// FailoverOutOfServiceTaint taints nodes whose VM is deallocated or gone.
	FailoverOutOfServiceTaint bool
	// RemoveNotReadyTaint lets the controller remove the start-up taint of nodes whose plug-in is
	// ready.
	RemoveNotReadyTaint bool
	// ReplicaReservedSlots of each node are left to primaries.
	ReplicaReservedSlots int32
	// ReplicaNodeLabel is the key of the label by which nodes may have replicas; "" for all nodes.
	ReplicaNodeLabel string
	// ReplicaDrainGrace is how long pods may be kept off a node before its replicas are replaced.
	ReplicaDrainGrace time.Duration
}

// controllerQPS is the default of kube-api-qps. The first start in a cluster writes each
// AzDriverNode, and a lost node costs some writes for each of its volumes. API priority and
// fairness protects the API server from more than that; this limit leaves room for other clients of
// the same priority level.
const controllerQPS = 200

// controllerBurst is the default of kube-api-burst: forty volumes that are unpublished at once cost
// about 500 calls, and a call that waits for its turn misses the update of the VM that detaches the
// others.
const controllerBurst = 1000

// AddFlags registers the settings with their defaults.
func (c *Controller) AddFlags(flags *pflag.FlagSet) {
	c.Common.AddFlags(flags)
	c.KubeAPIQPS, flags.Lookup("kube-api-qps").DefValue = controllerQPS, strconv.Itoa(controllerQPS)
	c.KubeAPIBurst, flags.Lookup("kube-api-burst").DefValue = controllerBurst, strconv.Itoa(controllerBurst)
	c.Cloud.AddFlags(flags)
	flags.StringVar(&c.Endpoint, "endpoint", "unix:///csi/csi.sock", "CSI `endpoint`")
	flags.BoolVar(&c.AttachRequired, "attach-required", true,
		"as in the CSIDriver object: Kubernetes calls for volumes to be attached and detached; with false the controller itself follows the pods")
	flags.StringToStringVar(&c.ExtraTags, "extra-tags", nil,
		"`tags` of all disks and snapshots that the driver creates, as name=value; those of a class take precedence. A comma separates tags, and belongs to the value within double quotes. Can be repeated")
	flags.StringVar(&c.ClusterID, "cluster-id", "",
		"name of the cluster; all disks and snapshots that the driver creates get it as the tag "+TagClusterID)
	flags.BoolVar(&c.LeaderElection, "leader-election", true,
		"let one of several replicas reconcile; every replica answers CSI calls")
	flags.StringVar(&c.LeaderElectionNamespace, "leader-election-namespace", "",
		"namespace of the lease; empty for the pod's own")
	flags.DurationVar(&c.LeaseDuration, "lease-duration", 15*time.Second,
		"how long a leader that does not renew keeps others waiting")
	flags.DurationVar(&c.RenewDeadline, "renew-deadline", 10*time.Second, "how long a leader tries to renew before it gives up")
	flags.DurationVar(&c.RetryPeriod, "retry-period", 2*time.Second, "time between tries to get or renew the lease")
	flags.DurationVar(&c.CleanUpDelay, "clean-up-delay", 5*time.Minute, "how long after its release a volume keeps its replicas")
	flags.DurationVar(&c.HeartbeatStaleAfter, "heartbeat-stale-after", 5*time.Second,
		"least age at which a heartbeat is stale; never less than two and a half times what the node promised")
	flags.BoolVar(&c.FailoverEnabled, "failover-enabled", true,
		"take volumes from nodes that are lost; without it only Kubernetes does")
	flags.StringVar(&c.FailoverProbe, "failover-probe", ProbeKubelet,
		"second sign that a node is lost: kubelet (its port does not answer) or none (its lease, 40 s by default, has to run out)")
	flags.DurationVar(&c.FailoverPatience, "failover-patience", nodehealth.DefaultPatience,
		"how long a node whose kubelet does not answer may take to answer a request for a heartbeat before it is lost; 1s to 1m")
	flags.IntVar(&c.FailoverMassLossThreshold, "failover-mass-loss-threshold", 45,
		"percentage of nodes; where more seem lost at once, and at least two, nothing new is fenced. 100 turns the guard off")
	flags.BoolVar(&c.FailoverOutOfServiceTaint, "failover-out-of-service-taint", true,
		"taint nodes whose VM is deallocated or gone as out of service, so that Kubernetes moves all of their pods")
	flags.BoolVar(&c.RemoveNotReadyTaint, "remove-not-ready-taint", true,
		"remove the taint <driver-name>/agent-not-ready from nodes whose node plug-in is ready")
	flags.Int32Var(&c.ReplicaReservedSlots, "replica-reserved-slots", 1,
		"attach slots of each node that replicas leave free for primaries")
	flags.StringVar(&c.ReplicaNodeLabel, "replica-node-label", "",
		"key of a label below node-restriction.kubernetes.io/: new replicas go to nodes that have it with the value of the node that uses the volume, or used it last (empty: to all nodes)")
	flags.DurationVar(&c.ReplicaDrainGrace, "replica-drain-grace", time.Minute,
		"how long pods may be kept off a node by a cordon, a taint or its labels before its replicas are replaced")
	flags.StringToStringVar(&c.MaintenancePolicies, "maintenance-policies", nil,
		"what to do before maintenance that Azure announces, as `kind=policy`; kinds: freeze, reboot, redeploy, preempt, terminate; policies: ignore, prepare (the default: no new replicas and no pods are steered there, and volumes in use there have a replica elsewhere), move (in addition pods with replicated volumes are evicted before)")
}

// Validate returns all faults.
func (c *Controller) Validate() error {
	faults := []error{
		c.Common.Validate(), c.Cloud.Validate(),
		faultIf(c.Endpoint == "", "endpoint: must not be empty"),
		faultIf(c.HeartbeatStaleAfter <= 0, "heartbeat-stale-after: %s must be above 0", c.HeartbeatStaleAfter),
		faultIf(c.CleanUpDelay < 0, "clean-up-delay: %s must not be negative", c.CleanUpDelay),
		faultIf(c.FailoverProbe != ProbeKubelet && c.FailoverProbe != ProbeNone, "failover-probe: %q must be %s or %s",
			c.FailoverProbe, ProbeKubelet, ProbeNone),
		faultIf(c.FailoverPatience < time.Second || c.FailoverPatience > time.Minute,
			"failover-patience: %s must be 1s to 1m", c.FailoverPatience),
		faultIf(c.FailoverMassLossThreshold < 1 || c.FailoverMassLossThreshold > 100,
			"failover-mass-loss-threshold: %d must be 1 to 100 percent", c.FailoverMassLossThreshold),
		faultIf(c.ReplicaReservedSlots < 0, "replica-reserved-slots: %d must not be negative", c.ReplicaReservedSlots),
		faultIf(c.ReplicaNodeLabel != "" && !strings.HasPrefix(c.ReplicaNodeLabel, corev1.LabelNamespaceNodeRestriction+"/"),
			"replica-node-label: %q must begin with %s/: a kubelet can give its node every other label", c.ReplicaNodeLabel,
			corev1.LabelNamespaceNodeRestriction),
		faultIf(c.ReplicaDrainGrace <= 0, "replica-drain-grace: %s must be above 0", c.ReplicaDrainGrace),
	}
	if _, err := maintenance.ParsePolicies(c.MaintenancePolicies); err != nil {
		faults = append(faults, fmt.Errorf("maintenance-policies: %w", err))
	}
	for name, value := range c.Tags() {
		faults = append(faults, faultIf(!paramtable.IsTag(name, value),
			"extra-tags, cluster-id: %q=%q must have 1 to 512 characters other than <>%%&?\\/ in the name, and up to 256 in the value", name, value))
	}
	faults = append(faults, faultIf(len(c.Tags()) > mostTags,
		"extra-tags: there are %d with cluster-id; allowed: %d, so that classes can have tags too", len(c.Tags()), mostTags))
	if !(c.LeaseDuration > c.RenewDeadline+c.RetryPeriod && c.RenewDeadline > c.RetryPeriod && c.RetryPeriod > 0) {
		faults = append(faults, fmt.Errorf(
			"lease-duration %s, renew-deadline %s, retry-period %s: the first must be above the sum of the others, the second above the third, and that above 0",
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod))
	}
	return errors.Join(faults...)
}

// Tags are the tags of all disks and snapshots that the driver creates.
func (c *Controller) Tags() map[string]string {
	tags := maps.Clone(c.ExtraTags)
	if c.ClusterID != "" {
		if tags == nil {
			tags = map[string]string{}
		}
		tags[TagClusterID] = c.ClusterID
	}
	return tags
}
