package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

// Records are the objects that an overview is made from, as they were read. Nodes is nil if they are
// not readable.
type Records struct {
	Now         time.Time
	Volumes     []*apiv1.AzVolume
	Attachments []*apiv1.AzVolumeAttachment
	DriverNodes []*apiv1.AzDriverNode
	Nodes       []*corev1.Node
	// Pods are those that use a claim, by its namespace and name, as in "shop/data".
	Pods map[string][]*corev1.Pod
	// FailoverEvents are those that the failover has recorded on Nodes.
	FailoverEvents []*corev1.Event
	// Leader is the lease of the leading controller; nil if it was not read.
	Leader *coordinationv1.Lease
	Unread []Unread
}

// Selection says which volumes and nodes an overview lists one by one. The zero value selects all.
type Selection struct {
	// Namespace of claims.
	Namespace string
	// Name is a part of the name of claims, volumes or nodes.
	Name string
}

// Limits of what an overview lists one by one. It counts the rest.
const (
	VolumeLimit   = 200
	NodeLimit     = 100
	failoverLimit = 10
)

// Overview is the state of volumes and nodes at one time.
type Overview struct {
	Document
	// Namespaces are those of all claims, with the numbers of their volumes.
	Namespaces []NamespaceCount `json:"namespaces"`
	Zones      []ZoneOverview   `json:"zones"`
	// Volumes are the selected ones, at most VolumeLimit. VolumesOmitted counts the others that are
	// selected.
	Volumes        []VolumeOverview `json:"volumes"`
	VolumesOmitted int              `json:"volumesOmitted,omitempty"`
	// Moves are what is under way now.
	Moves []Move `json:"moves"`
	// Leader says that no controller leads; "" if one does, or if that is not known.
	Leader string `json:"warning,omitempty"`
	// Attention are volumes and nodes that are not as they should be.
	Attention []Attention `json:"attention"`
	// Failovers are the last ones, the newest first.
	Failovers []Failover `json:"failovers"`
}

// NamespaceCount is a namespace with the number of its volumes.
type NamespaceCount struct {
	Name    string `json:"name"`
	Volumes int    `json:"volumes"`
}

// ZoneOverview is a zone, or all nodes that are in none. The numbers are of all of its nodes.
type ZoneOverview struct {
	Name       string `json:"name,omitempty"`
	NodeCount  int    `json:"nodeCount"`
	Unhealthy  int    `json:"unhealthy"`
	Primaries  int    `json:"primaries"`
	Replicas   int    `json:"replicas"`
	SlotsFree  int32  `json:"slotsFree"`
	SlotsTotal int32  `json:"slots"`
	// Nodes are the selected ones. If all zones together have more than NodeLimit, they are those of
	// the selected that are not healthy, and the first of the others. NodesOmitted counts the rest.
	Nodes        []NodeOverview `json:"nodes"`
	NodesOmitted int            `json:"nodesOmitted,omitempty"`
}

// NodeOverview is a node with the disks that it has or is to have.
type NodeOverview struct {
	NodeRow
	// Healthy says that neither the driver nor Kubernetes finds anything wrong with the node.
	Healthy bool `json:"healthy"`
	// Disks are those of the listed volumes.
	Disks []DiskOnNode `json:"disks"`
}

// DiskOnNode is an attachment.
type DiskOnNode struct {
	AzVolume string `json:"azVolume"`
	// Label is the claim's name, or the volume's if there is none.
	Label string `json:"label"`
	Role  string `json:"role"`
	State string `json:"state"`
}

// VolumeOverview is a volume with the pods that use it.
type VolumeOverview struct {
	VolumeRow
	// Pods are nil if they were not read.
	Pods []PodOnNode `json:"pods,omitempty"`
}

// PodOnNode is a pod of a volume.
type PodOnNode struct {
	Name  string `json:"name"`
	Node  string `json:"node,omitempty"`
	Phase string `json:"phase"`
	Ready bool   `json:"ready"`
}

// Move is something under way.
type Move struct {
	AzVolume string     `json:"azVolume"`
	Label    string     `json:"label"`
	Says     string     `json:"message"`
	Since    *time.Time `json:"since,omitempty"`
}

// Attention is a volume or a node that is not as it should be. The question why is about Subject.
type Attention struct {
	Subject Subject  `json:"subject"`
	State   string   `json:"state"`
	Reasons []string `json:"reasons,omitempty"`
}

// Failover is what the driver has recorded of the loss of a node.
type Failover struct {
	Node  string         `json:"node"`
	Steps []FailoverStep `json:"steps"`
}

// FailoverStep is a step of a failover. Its time has the precision of an event, a second.
type FailoverStep struct {
	At     time.Time `json:"time"`
	Reason string    `json:"reason"`
	Says   string    `json:"message"`
}

// NewOverview makes an overview of records.
func NewOverview(r Records, s Selection) Overview {
	all := VolumeRows(r.Volumes, r.Attachments, "")
	o := Overview{
		Document:   NewDocument("Overview", r.Now, r.Unread),
		Namespaces: namespaceCounts(all),
		Volumes:    []VolumeOverview{},
		Failovers:  failovers(r.FailoverEvents),
	}
	labels := map[string]string{} // of the selected volumes, by AzVolume
	attention := []Attention{}
	for _, row := range all {
		if !s.hasVolume(row) {
			continue
		}
		labels[row.AzVolume] = row.label()
		if len(row.Reasons) > 0 {
			attention = append(attention, Attention{Subject: row.subject(), State: row.State, Reasons: row.Reasons})
		}
		if len(o.Volumes) < VolumeLimit {
			o.Volumes = append(o.Volumes, VolumeOverview{VolumeRow: row, Pods: podsOf(r.Pods[row.Namespace+"/"+row.Claim])})
		} else {
			o.VolumesOmitted++
		}
	}
	o.Moves = moves(r, labels)
	var nodes []Attention
	o.Zones, nodes = zones(r, s, o.Volumes)
	o.Attention = append(nodes, attention...)
	o.outdate(unled(r.Leader, r.Now))
	return o
}

func (s Selection) hasVolume(row VolumeRow) bool {
	if s.Namespace != "" && row.Namespace != s.Namespace {
		return false
	}
	names := append([]string{row.Claim, row.PersistentVolume, row.AzVolume}, slices.Concat(row.Primaries, row.Warm)...)
	return s.Name == "" || slices.ContainsFunc(names, s.matches)
}

func (s Selection) matches(name string) bool { return strings.Contains(name, s.Name) }

func (r VolumeRow) label() string { return cmp.Or(r.Claim, r.PersistentVolume, r.AzVolume) }

func (r VolumeRow) subject() Subject {
	if r.Claim != "" {
		return Subject{Kind: KindClaim, Namespace: r.Namespace, Name: r.Claim}
	}
	return Subject{Kind: KindVolume, Name: cmp.Or(r.PersistentVolume, r.AzVolume)}
}

func namespaceCounts(rows []VolumeRow) []NamespaceCount {
	counts := []NamespaceCount{}
	for _, row := range rows { // which are in the order of their namespaces
		if n := len(counts); n > 0 && counts[n-1].Name == row.Namespace {
			counts[n-1].Volumes++
		} else {
			counts = append(counts, NamespaceCount{Name: row.Namespace, Volumes: 1})
		}
	}
	return counts
}

func podsOf(pods []*corev1.Pod) []PodOnNode {
	var list []PodOnNode
	for _, p := range pods {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		phase := string(p.Status.Phase)
		if p.DeletionTimestamp != nil {
			phase = "Terminating"
		}
		list = append(list, PodOnNode{Name: p.Name, Node: p.Spec.NodeName, Phase: phase, Ready: ready})
	}
	slices.SortFunc(list, func(a, b PodOnNode) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// moves are what is under way for the volumes that have a label, the newest last.
func moves(r Records, labels map[string]string) []Move {
	all := []Move{}
	add := func(volume, says string, since *time.Time) {
		if label, selected := labels[volume]; selected {
			all = append(all, Move{AzVolume: volume, Label: label, Says: says, Since: since})
		}
	}
	for _, v := range r.Volumes {
		if p := v.Status.Primary; p != nil && p.State == apiv1.OwnershipReleasing {
			add(v.Name, "node "+p.NodeName+" gives it up", sinceOf(p))
		}
	}
	for _, a := range r.Attachments {
		since := &a.CreationTimestamp.Time
		if c := meta.FindStatusCondition(a.Status.Conditions, apiv1.AttachmentConditionAttached); c != nil {
			since = &c.LastTransitionTime.Time
		}
		role := strings.ToLower(string(a.Spec.Role))
		switch {
		case a.DeletionTimestamp != nil || a.Status.State == apiv1.AttachmentDetaching ||
			a.Status.State == apiv1.AttachmentDetachFail:
			add(a.Spec.VolumeName, "is detached from node "+a.Spec.NodeName, since)
		case a.Status.State != apiv1.AttachmentAttached:
			add(a.Spec.VolumeName, "is attached to node "+a.Spec.NodeName+" as "+role, since)
		}
	}
	slices.SortStableFunc(all, func(a, b Move) int {
		return cmp.Or(timeOf(a.Since).Compare(timeOf(b.Since)), cmp.Compare(a.AzVolume, b.AzVolume))
	})
	return all
}

// timeOf is the zero time for a time that is not known.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// zones are the nodes by zone, and what is wrong with the nodes that are selected.
func zones(r Records, s Selection, volumes []VolumeOverview) ([]ZoneOverview, []Attention) {
	disks := disksByNode(r.Attachments, volumes)
	zones, attention := map[string]*ZoneOverview{}, []Attention{}
	listed := 0
	rows := NodeRows(r.DriverNodes, r.Nodes, r.Attachments)
	// The first that are listed are those in need of attention.
	slices.SortStableFunc(rows, func(a, b NodeRow) int {
		switch {
		case a.healthy() == b.healthy():
			return 0
		case b.healthy():
			return -1
		}
		return 1
	})
	for _, row := range rows {
		z := zones[row.Zone]
		if z == nil {
			z = &ZoneOverview{Name: row.Zone, Nodes: []NodeOverview{}}
			zones[row.Zone] = z
		}
		z.NodeCount++
		z.Primaries += row.Primaries
		z.Replicas += row.Replicas
		if row.Slots != nil {
			z.SlotsFree += *row.SlotsFree
			z.SlotsTotal += *row.Slots
		}
		selected := s.matches(row.Name) || len(disks[row.Name]) > 0
		if !row.healthy() {
			z.Unhealthy++
			attention = append(attention, Attention{
				Subject: Subject{Kind: KindNode, Name: row.Name},
				State:   row.State, Reasons: row.Reasons,
			})
		}
		switch {
		case !selected:
		case listed == NodeLimit:
			z.NodesOmitted++
		default:
			listed++
			z.Nodes = append(z.Nodes, NodeOverview{NodeRow: row, Healthy: row.healthy(), Disks: disks[row.Name]})
		}
	}
	all := []ZoneOverview{}
	for _, z := range zones {
		slices.SortFunc(z.Nodes, func(a, b NodeOverview) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, *z)
	}
	slices.SortFunc(all, func(a, b ZoneOverview) int { return cmp.Compare(a.Name, b.Name) })
	return all, attention
}

func (r NodeRow) healthy() bool {
	return r.State == string(nodehealth.Healthy) && len(r.Reasons) == 0 && (r.Kubelet == "" || r.Kubelet == kubeletReady)
}

func disksByNode(attachments []*apiv1.AzVolumeAttachment, volumes []VolumeOverview) map[string][]DiskOnNode {
	labels := map[string]string{}
	for _, v := range volumes {
		labels[v.AzVolume] = v.label()
	}
	disks := map[string][]DiskOnNode{}
	for _, a := range attachments {
		label, listed := labels[a.Spec.VolumeName]
		if !listed {
			continue
		}
		state := cmp.Or(a.Status.State, apiv1.AttachmentPending)
		if a.DeletionTimestamp != nil {
			state = apiv1.AttachmentDetaching
		}
		disks[a.Spec.NodeName] = append(disks[a.Spec.NodeName], DiskOnNode{
			AzVolume: a.Spec.VolumeName,
			Label:    label,
			Role:     string(a.Spec.Role),
			State:    string(state),
		})
	}
	for _, list := range disks {
		slices.SortFunc(list, func(a, b DiskOnNode) int {
			return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.AzVolume, b.AzVolume))
		})
	}
	return disks
}

// failovers returns the last failovers. One begins with the first event of a node and ends at NodeBack,
// or after five minutes without an event. A false alarm belongs to the failover before it.
func failovers(events []*corev1.Event) []Failover {
	const quiet = 5 * time.Minute
	sorted := slices.SortedStableFunc(slices.Values(events), func(a, b *corev1.Event) int {
		return a.FirstTimestamp.Compare(b.FirstTimestamp.Time)
	})
	latest := map[string]*Failover{} // by node
	var all []*Failover
	for _, e := range sorted {
		node, at := e.InvolvedObject.Name, e.FirstTimestamp.Time
		f := latest[node]
		if f == nil || f.ended(at, quiet) && e.Reason != apiv1.ReasonFailoverFalseAlarm {
			f = &Failover{Node: node}
			latest[node] = f
			all = append(all, f)
		}
		f.Steps = append(f.Steps, FailoverStep{At: at, Reason: e.Reason, Says: e.Message})
	}
	last := []Failover{}
	for _, f := range slices.Backward(all) {
		if len(last) < failoverLimit {
			last = append(last, *f)
		}
	}
	return last
}

// ended reports whether a failover had ended at a time.
func (f *Failover) ended(at time.Time, quiet time.Duration) bool {
	back := slices.ContainsFunc(f.Steps, func(s FailoverStep) bool { return s.Reason == apiv1.ReasonNodeBack })
	return back || at.Sub(f.Steps[len(f.Steps)-1].At) > quiet
}
