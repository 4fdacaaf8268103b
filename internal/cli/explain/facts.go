package explain

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
)

// Kind of an object that can be explained.
type Kind string

// The kinds.
const (
	KindPod      Kind = "Pod"
	KindClaim    Kind = "PersistentVolumeClaim"
	KindVolume   Kind = "PersistentVolume"
	KindNode     Kind = "Node"
	KindSnapshot Kind = "VolumeSnapshot"
)

// ClusterScoped reports whether objects of the kind are in no namespace.
func (k Kind) ClusterScoped() bool {
	return k != KindPod && k != KindClaim && k != KindSnapshot
}

// Subject is the object that the question is about.
type Subject struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the subject in a sentence.
func (s Subject) String() string {
	names := map[Kind]string{KindPod: "pod", KindClaim: "claim", KindNode: "node", KindSnapshot: "snapshot", "Zone": "zone"}
	kind := names[s.Kind]
	if kind == "" {
		kind = string(s.Kind)
	}
	if s.Namespace == "" {
		return kind + " " + s.Name
	}
	return kind + " " + s.Namespace + "/" + s.Name
}

// Facts are the objects that an explanation is made from, as they were read. A nil object does not
// exist, unless Unread names its kind.
type Facts struct {
	// Now is the API server's time, in the location in which times are shown.
	Now     time.Time
	Subject Subject
	// DriverNamespace is the namespace of the custom resources and of the driver's leases.
	DriverNamespace string
	// DriverName is the CSI driver's.
	DriverName string

	// Pod is set for a question about a pod.
	Pod *corev1.Pod
	// Volumes are those of the pod, or the one that the question is about.
	Volumes []*Volume
	// Nodes are those that matter, by name.
	Nodes map[string]*Node
	// Snapshot is set for a question about a snapshot.
	Snapshot *Snapshot
	Driver   Driver
	// Events are those of the subject, of its claims and of its node.
	Events []corev1.Event
	// Unread is what could not be read.
	Unread []Unread
}

// Volume is a volume with the objects on the way from its claim to its disk.
type Volume struct {
	// Namespace and ClaimName name the claim; ClaimName is "" for a PersistentVolume without one.
	Namespace, ClaimName string
	Claim                *corev1.PersistentVolumeClaim
	// Class is the claim's StorageClass. It and DefaultClass, the name of the cluster's default, are
	// read only if the claim is not bound.
	Class            *storagev1.StorageClass
	DefaultClass     string
	PersistentVolume *corev1.PersistentVolume
	// SourceMissing names the source that the claim is to be made from, as in "claim data", if it does
	// not exist. It is read only if the claim is not bound.
	SourceMissing string
	// AttributesClassMissing says that the VolumeAttributesClass of the claim does not exist.
	AttributesClassMissing bool
	// Snapshots are the names of the VolumeSnapshots of the claim that are not complete. They are read
	// only if they keep the claim from being deleted.
	Snapshots []string
	// Name is the AzVolume's; "" if it is not known, or if the volume is another driver's.
	Name     string
	AzVolume *apiv1.AzVolume
	// Attachments of the AzVolume.
	Attachments []*apiv1.AzVolumeAttachment
	// Pods that use the volume, as far as they matter: those on the nodes that have it, and those
	// that wait for it.
	Pods []*corev1.Pod
	// VolumeAttachment to the pod's node, where Kubernetes uses them.
	VolumeAttachment *storagev1.VolumeAttachment
	// Reachability is set for the volume of a pod that has no node.
	Reachability *Reachability
}

// Reachability says which nodes a pod without a node could be placed on because of one volume.
type Reachability struct {
	// Rule is what the PersistentVolume requires of a node, as a selector.
	Rule string
	// Nodes says that a node exists that meets the rule; Selected says that one of those also meets
	// the node selector and the required node affinity of the pod.
	Nodes, Selected bool
}

// Node is a node.
type Node struct {
	Node       *corev1.Node
	DriverNode *apiv1.AzDriverNode
	CSINode    *storagev1.CSINode
	// Attachments to the node; read only for a question about the node.
	Attachments []*apiv1.AzVolumeAttachment
	// Held and Pods are what the decision about a failover needs; read only if the node seems lost.
	// For a question about a volume they are limited to what decides about that volume.
	Held []lostnode.Volume
	Pods []lostnode.Pod
}

// Driver is what is known of the driver's own parts.
type Driver struct {
	CSIDriver *storagev1.CSIDriver
	// Controller is the controller plug-in's Deployment.
	Controller *appsv1.Deployment
	// Leases by name.
	Leases map[string]*coordinationv1.Lease
}

func (d Driver) setting(name string) (value string, ok bool) { return Setting(d.Controller, name) }

// Setting returns the value of a flag of the controller plug-in; ok is false if it is not known.
// controller may be nil.
func Setting(controller *appsv1.Deployment, name string) (value string, ok bool) {
	if controller == nil {
		return "", false
	}
	return Flag(controller.Spec.Template.Spec, name)
}

// Flag returns the value of a flag of one of a pod's containers; ok is false if none has it.
func Flag(pod corev1.PodSpec, name string) (value string, ok bool) {
	for _, c := range pod.Containers {
		for _, arg := range c.Args {
			if value, ok = strings.CutPrefix(arg, "--"+name+"="); ok {
				return value, true
			}
		}
	}
	return "", false
}

// Snapshot is a VolumeSnapshot, and what its driver has recorded.
type Snapshot struct {
	Class, SourceClaim string
	// ClassMissing and SourceMissing say that the object of that name does not exist.
	ClassMissing, SourceMissing bool
	// Driver is the class's.
	Driver  string
	Created time.Time
	Ready   bool
	// Bound is the VolumeSnapshotContent.
	Bound string
	// Error is what the snapshot's status says, and ErrorTime since when.
	Error     string
	ErrorTime time.Time
}

func (f Facts) unread(what string) bool {
	return slices.ContainsFunc(f.Unread, func(u Unread) bool { return u.What == what })
}

// The resources, as Unread names them.
const (
	Pods          = "pods"
	AllPods       = "pods in all namespaces"
	Claims        = "persistentvolumeclaims"
	Volumes       = "persistentvolumes"
	Classes       = "storageclasses.storage.k8s.io"
	NodesResource = "nodes"
	CSINodes      = "csinodes.storage.k8s.io"
	CSIDrivers    = "csidrivers.storage.k8s.io"
	AzVolumes     = "azvolumes." + apiv1.GroupName
	AzAttachments = "azvolumeattachments." + apiv1.GroupName
	AzDriverNodes = "azdrivernodes." + apiv1.GroupName
	Leases        = "leases.coordination.k8s.io"
	Deployments   = "deployments.apps"
	EventResource = "events"
	Attachments   = "volumeattachments.storage.k8s.io"
)

// wide reports whether the facts reach beyond the namespace: whether the driver's own records could
// be read.
func (f Facts) wide() bool {
	return !f.unread(AzVolumes) && !f.unread(Volumes) && !f.unread(AzAttachments)
}

func (f Facts) node(name string) *Node {
	if n := f.Nodes[name]; n != nil {
		return n
	}
	return &Node{}
}
