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

// ping reads something small from the API server itself.
func (m *Monitor) ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	var list apiv1.AzDriverNodeList
	err := m.APIReader.List(ctx, &list, client.InNamespace(m.Namespace), client.Limit(1))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contact.busy = false
	if err == nil {
		m.contact = m.contact.answered(m.Clock.Now())
	}
}

func (m *Monitor) doProbe(ctx context.Context, n *node, beats uint64) {
	result := ProbeResult{Unknown: true} // the Node is not known
	k8sNode := &corev1.Node{}
	if err := m.Reader.Get(ctx, client.ObjectKey{Name: n.name}, k8sNode); err == nil {
		result = m.Prober.Probe(ctx, k8sNode)
	}
	m.metrics.probe(result)
	m.mu.Lock()
	defer m.mu.Unlock()
	n.probe.busy = false
	if ctx.Err() != nil || m.nodes[n.name] != n {
		if result.Connection != nil {
			result.Connection.Close()
		}
		return
	}
	n.keep(result.Connection)
	n.probed(result, beats, m.Clock.Now())
}

// requestHeartbeat writes the request into the AzDriverNode. The node reports at once when it sees
// the change.
func (m *Monitor) requestHeartbeat(ctx context.Context, n *node, beats uint64) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	before := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: n.name}}
	after := before.DeepCopy()
	after.Status.HeartbeatRequestedTime = &metav1.MicroTime{Time: m.Clock.Now()}
	err := m.Writer.Status().Patch(ctx, after, client.MergeFrom(before))
	m.metrics.requests.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	n.request.busy = false
	if err == nil {
		n.requested(m.Clock.Now(), beats)
	}
}

// askAzure reads the power state of the VM of a node, if nodehealth.Question allows it. If it gets no
// answer, it changes nothing.
func (m *Monitor) askAzure(ctx context.Context, n *node, beats uint64) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m.mu.Lock()
	vmID, question := n.vmID, m.question(n)
	if n.mayWait() { // the fences of the others need the quota
		ctx = provisioner.Deferrable(ctx)
	}
	m.mu.Unlock()
	var instance provisioner.Instance
	var err error
	question.Primary, err = m.holdsPrimary(ctx, n.name)
	asked := err == nil && question.Due() && m.believes(ctx, n.name, vmID)
	if asked {
		instance, err = m.Instances.Get(ctx, vmID)
		m.metrics.question(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n.azure.busy = false
	switch {
	case !asked || beats != n.beats:
	case errors.Is(err, provisioner.NotFound):
		n.azure.answer("", true, m.Clock.Now())
	case err == nil && instance.Power != provisioner.PowerUnknown:
		n.azure.answer(instance.Power, false, m.Clock.Now())
	}
}

// question returns the question about a node's VM, without Primary. The caller holds the lock.
func (m *Monitor) question(n *node) nodehealth.Question {
	now := m.Clock.Now()
	q := nodehealth.Question{
		State:    n.health.State,
		Silent:   now.Sub(n.lastSign(now)),
		Recalled: n.azure.recalled,
		Doubted:  !m.guard.closed.IsZero() && n.health.State == nodehealth.Lost && !n.decided(n.health),
		Answered: -1,
	}
	if !n.azure.answered.IsZero() {
		q.Answered = now.Sub(n.azure.answered)
	}
	return q
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
// If it cannot, it changes nothing.
func (m *Monitor) readStake(ctx context.Context, n *node, beats uint64) {
	k8sNode := &corev1.Node{}
	err := m.Reader.Get(ctx, client.ObjectKey{Name: n.name}, k8sNode)
	var here []*apiv1.AzVolumeAttachment
	if err == nil {
		here, err = cluster.AttachmentsOfNode(ctx, m.Reader, m.Namespace, n.name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n.stake.busy = false
	if err == nil && beats == n.beats {
		n.stake.none = nodehealth.FailedOver(k8sNode, here)
	}
}

// readLease reads the kubelet's lease. Whether it is renewed is judged by this process's clock.
func (m *Monitor) readLease(ctx context.Context, n *node, beats uint64) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found := &coordinationv1.Lease{}
	err := m.APIReader.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: n.name}, found)
	m.mu.Lock()
	defer m.mu.Unlock()
	n.lease.busy = false
	if beats != n.beats {
		return
	}
	if apierrors.IsNotFound(err) {
		n.lease.duration = 0
	}
	if err != nil || found.Spec.RenewTime == nil || found.Spec.LeaseDurationSeconds == nil {
		return
	}
	if renewed := found.Spec.RenewTime.Time; n.lease.duration == 0 || !renewed.Equal(n.lease.renewed) {
		n.lease.renewed, n.lease.changed = renewed, m.Clock.Now()
	}
	n.lease.duration = time.Duration(*found.Spec.LeaseDurationSeconds) * time.Second
}

// confirmSilence reads the AzDriverNode from the API server itself, because the cache may be cut
// off. Of a node whose plug-in does not follow Azure's announcements it reads what the node problem
// detector has written into the Node: no node is lost before it was confirmed.
func (m *Monitor) confirmSilence(ctx context.Context, n *node, beats uint64) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	d := &apiv1.AzDriverNode{}
	err := m.APIReader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: n.name}, d)
	var announced []apiv1.MaintenanceEvent
	if k8sNode := (&corev1.Node{}); m.Reader.Get(ctx, client.ObjectKey{Name: n.name}, k8sNode) == nil {
		announced = maintenance.FromNode(k8sNode)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n.confirm.busy = false
	if err != nil || m.nodes[n.name] != n {
		return
	}
	m.observe(d)
	if !n.pauses.followed {
		m.metrics.announced(n.pauses.announce(announced, m.Clock.Now()))
	}
	if n.beats == beats {
		n.confirmed = true
	}
}
