package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

// ControllerLease is the lease of the leading controller.
const ControllerLease = "azuredisk-controller"

// SpareController is the label and the taint of the nodes that are kept for
// controllers, because no node with one is to be lost.
const SpareController = "playground.azuredisk/controllers"

// Leader is where the leading controller runs, and since when it leads.
type Leader struct {
	Pod, Node string
	Since     time.Time
}

// Leader returns the leading controller, and waits for one if there is none.
func (e *Environment) Leader(ctx context.Context) (Leader, error) {
	var leads Leader
	err := e.View.Await(ctx, SetUpTimeout, "a controller leads", func() bool {
		name, since := e.View.LeaseHolder(ControllerLease)
		pod := e.View.DriverPod(name)
		if pod == nil || pod.DeletionTimestamp != nil {
			return false
		}
		leads = Leader{pod.Name, pod.Spec.NodeName, since}
		return true
	})
	return leads, err
}

// ControllerNodes are the nodes on which controllers run, by name.
func (e *Environment) ControllerNodes() []string {
	nodes := map[string]bool{}
	for _, pod := range e.View.Controllers() {
		if pod.Spec.NodeName != "" {
			nodes[pod.Spec.NodeName] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// StartAway is start, but the pods go to nodes without a controller; if every node has one, to
// nodes without the leader. So the loss of such a node does not stop the driver's controller, and
// the report says where the leader was.
func (e *Environment) StartAway(ctx context.Context, workloads ...Workload) ([]observer.Volume, error) {
	avoid := e.ControllerNodes()
	leads, err := e.Leader(ctx)
	if err != nil {
		return nil, err
	}
	if len(avoid) >= len(e.View.Nodes("")) {
		avoid = []string{leads.Node}
	}
	e.Metric("controller_leader_node", leads.Node)
	// Replicas may go to the nodes that the pods had to avoid.
	if err := e.createAvoiding(ctx, avoid, workloads...); err != nil {
		return nil, err
	}
	return e.AwaitAllReady(ctx, workloads...)
}

// CreateOn is createAvoiding for every node but one.
func (e *Environment) CreateOn(ctx context.Context, node string, workloads ...Workload) error {
	// The other zones are free first: a replica goes to the first node that is, and stays there.
	var own []string
	for _, zone := range e.View.Zones() {
		if nodes := e.View.Nodes(zone); slices.Contains(nodes, node) {
			own = nodes
		}
	}
	others := slices.DeleteFunc(e.View.Nodes(""), func(name string) bool { return slices.Contains(own, name) })
	others = append(others, own...)
	return e.createAvoiding(ctx, slices.DeleteFunc(others, func(name string) bool { return name == node }), workloads...)
}

// StartOn is start, with all pods on that node.
func (e *Environment) StartOn(ctx context.Context, node string, workloads ...Workload) ([]observer.Volume, error) {
	if err := e.CreateOn(ctx, node, workloads...); err != nil {
		return nil, err
	}
	return e.AwaitAllReady(ctx, workloads...)
}

// createAvoiding makes the workloads while nodes are cordoned, and returns when their pods have
// been scheduled and the nodes are free again.
func (e *Environment) createAvoiding(ctx context.Context, nodes []string, workloads ...Workload) error {
	free := func(ctx context.Context) error {
		var failures []error
		for _, node := range nodes {
			failures = append(failures, e.SetCordon(ctx, node, false))
		}
		return errors.Join(failures...)
	}
	cordoned := "uncordon " + strings.Join(nodes, ", ")
	e.RepairLater(cordoned, free)
	for _, node := range nodes {
		if err := e.SetCordon(ctx, node, true); err != nil {
			return err
		}
	}
	for _, w := range workloads {
		if err := e.create(ctx, w); err != nil {
			return err
		}
	}
	for _, w := range workloads {
		err := e.View.Await(ctx, StartTimeout, w.Pod()+" is scheduled", func() bool {
			pod := e.View.Pod(w.Pod())
			return pod != nil && pod.Spec.NodeName != ""
		})
		if err != nil {
			return err
		}
	}
	if err := free(ctx); err != nil {
		return err
	}
	e.Repaired(cordoned)
	return nil
}

// SetSpare keeps a node for the driver's own components, or gives it back: it gets the
// label that they select, and a taint that only those components tolerate.
func (e *Environment) SetSpare(ctx context.Context, name string, on bool) error {
	node, err := e.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("keep %s for controllers: %w", name, err)
	}
	before := node.DeepCopy()
	delete(node.Labels, SpareController)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == SpareController })
	if on {
		node.Labels[SpareController] = "true"
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: SpareController, Effect: corev1.TaintEffectNoSchedule})
	}
	patch, err := nodePatch(before, node)
	if err != nil {
		return err
	}
	if _, err := e.Kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("keep %s for controllers: %w", name, err)
	}
	return nil
}

func nodePatch(before, after *corev1.Node) ([]byte, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(was, is, corev1.Node{})
}
