package liveness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// The lease of a kubelet is read if probes do not reach it.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kube-node-lease,resources=leases,verbs=get

const (
	// readTimeout bounds a read of the API server, and askTimeout a question to Azure.
	readTimeout = 2 * time.Second
	askTimeout  = 10 * time.Second
)

// look makes a look, and passes its answer to the Detector.
func (m *Monitor) look(ctx context.Context, look nodehealth.Look) {
	switch look.Kind {
	case nodehealth.LookPing:
		m.see(m.ping(ctx, look))
	case nodehealth.LookProbe:
		m.probe(ctx, look)
	case nodehealth.LookRequest:
		m.see(m.requestHeartbeat(ctx, look))
	case nodehealth.LookQuestion:
		m.see(m.askAzure(ctx, look))
	case nodehealth.LookReview: // the fences of the others need the quota
		m.see(m.askAzure(provisioner.Deferrable(ctx), look))
	case nodehealth.LookLease:
		m.see(m.readLease(ctx, look))
	case nodehealth.LookSilence:
		m.see(m.readSilence(ctx, look))
	case nodehealth.LookStake:
		m.see(m.readStake(ctx, look))
	}
}

// ping reads something small from the API server itself.
func (m *Monitor) ping(ctx context.Context, look nodehealth.Look) nodehealth.Pinged {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var list apiv1.AzDriverNodeList
	err := m.APIReader.List(ctx, &list, client.InNamespace(m.Namespace), client.Limit(1))
	return nodehealth.Pinged{Look: look, Answered: err == nil}
}

// probe probes a node, and keeps the connection that the probe leaves open.
func (m *Monitor) probe(ctx context.Context, look nodehealth.Look) {
	result := ProbeResult{Unknown: true} // the Node is not known
	node := &corev1.Node{}
	if err := m.Reader.Get(ctx, client.ObjectKey{Name: look.Node}, node); err == nil {
		result = m.Prober.Probe(ctx, node)
	}
	m.metrics.probe(result)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.Clock.Now()
	if _, known := m.detector.Health(look.Node, now); known {
		m.keep(look.Node, result.Connection)
	} else if result.Connection != nil {
		result.Connection.Close()
	}
	m.tell(m.detector.See(now, nodehealth.Probed{
		Look:      look,
		Answered:  result.Answered,
		Unknown:   result.Unknown || ctx.Err() != nil,
		Connected: result.Connection != nil,
	}))
}

// requestHeartbeat writes the request into the AzDriverNode. The node reports at once when it sees
// the change.
func (m *Monitor) requestHeartbeat(ctx context.Context, look nodehealth.Look) nodehealth.HeartbeatRequested {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	before := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: look.Node}}
	after := before.DeepCopy()
	after.Spec.Requests = &apiv1.NodeRequests{HeartbeatTime: &metav1.MicroTime{Time: m.Clock.Now()}}
	err := m.Writer.Patch(ctx, after, client.MergeFrom(before))
	m.metrics.requests.Inc()
	return nodehealth.HeartbeatRequested{Look: look, Written: err == nil}
}

// askAzure reads the power state of the VM of a node, if nodehealth.Question allows it.
func (m *Monitor) askAzure(ctx context.Context, look nodehealth.Look) nodehealth.PowerRead {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	question := look.Question
	var err error
	question.Primary, err = m.holdsPrimary(ctx, look.Node)
	if err != nil || !question.Due() || !m.believes(ctx, look.Node, look.VMID) {
		return nodehealth.PowerRead{Look: look}
	}
	instance, err := m.Instances.Get(ctx, look.VMID)
	m.metrics.question(err)
	switch {
	case errors.Is(err, provisioner.NotFound):
		return nodehealth.PowerRead{Look: look, Gone: true}
	case err != nil:
		return nodehealth.PowerRead{Look: look}
	}
	return nodehealth.PowerRead{Look: look, Power: instance.Power}
}

// believes reports whether the Node does not contradict that the node is this VM: the power state
// of another VM says nothing about the node.
func (m *Monitor) believes(ctx context.Context, name, vmID string) bool {
	node := &corev1.Node{}
	if err := m.Reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return apierrors.IsNotFound(err)
	}
	provider := identity.ProviderVM(node)
	return provider == "" || strings.EqualFold(provider, vmID)
}

func (m *Monitor) holdsPrimary(ctx context.Context, name string) (bool, error) {
	here, err := cluster.AttachmentsOfNode(ctx, m.Reader, m.Namespace, name)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(here, func(a *apiv1.AzVolumeAttachment) bool { return a.Spec.Role == apiv1.RolePrimary }), nil
}

// readStake finds out whether a suspect or lost node has volumes left that a failover would fence.
func (m *Monitor) readStake(ctx context.Context, look nodehealth.Look) nodehealth.StakeRead {
	node := &corev1.Node{}
	if err := m.Reader.Get(ctx, client.ObjectKey{Name: look.Node}, node); err != nil {
		return nodehealth.StakeRead{Look: look}
	}
	here, err := cluster.AttachmentsOfNode(ctx, m.Reader, m.Namespace, look.Node)
	return nodehealth.StakeRead{Look: look, Read: err == nil, FailedOver: nodehealth.FailedOver(node, here)}
}

// readLease reads the kubelet's lease.
func (m *Monitor) readLease(ctx context.Context, look nodehealth.Look) nodehealth.LeaseRead {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found := &coordinationv1.Lease{}
	err := m.APIReader.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: look.Node}, found)
	read := nodehealth.LeaseRead{Look: look, Missing: apierrors.IsNotFound(err)}
	if err == nil && found.Spec.RenewTime != nil && found.Spec.LeaseDurationSeconds != nil {
		read.Renewed = found.Spec.RenewTime.Time
		read.Duration = time.Duration(*found.Spec.LeaseDurationSeconds) * time.Second
	}
	return read
}

// readSilence reads the AzDriverNode from the API server itself. It also reads what the node problem
// detector has written into the Node, because no node is lost before its silence was read.
func (m *Monitor) readSilence(ctx context.Context, look nodehealth.Look) nodehealth.SilenceRead {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	read := nodehealth.SilenceRead{Look: look}
	d := &apiv1.AzDriverNode{}
	if err := m.APIReader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: look.Node}, d); err == nil {
		read.Report = d
	}
	if node := (&corev1.Node{}); m.Reader.Get(ctx, client.ObjectKey{Name: look.Node}, node) == nil {
		read.Announced = maintenance.FromNode(node)
	}
	return read
}
