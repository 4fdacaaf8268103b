package scenario

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// cutOff is how long the nodes are cut off: several times as long as it takes to find
	// one node lost, and not so long that Kubernetes evicts their pods.
	cutOff = time.Minute
	// massLossPercent is the driver's default massLossThreshold.
	massLossPercent = 45
	// reasonHeldBack is the reason of the condition Reachable and of the event.
	reasonHeldBack = "FencingHeldBack"
	guardMetric    = "azuredisk_failover_guard_active"
	metricsPort    = "metrics"
)

// massFalseAlarm cuts off at once more nodes than can be believed to have died. Their
// pods run on and write; so it is the network that is broken, and nothing is to be fenced.
func massFalseAlarm(ctx context.Context, e *Environment) error {
	cut, err := e.alarmNodes(ctx)
	if err != nil {
		return err
	}
	e.Progress("making a pod that writes on each of %s", strings.Join(cut, " and "))
	workloads, volumes, err := e.startOneOnEach(ctx, cut)
	if err != nil {
		return err
	}
	before, err := e.steadyOf(workloads, volumes)
	if err != nil {
		return err
	}
	e.Progress("cutting off %s, for %s", strings.Join(cut, " and "), cutOff)
	began := e.Clock.Now()
	for _, node := range cut {
		if _, err := e.partition(ctx, node); err != nil {
			return err
		}
	}
	e.metric("nodes_cut_off", len(cut))
	if err := e.awaitGuard(ctx, cut, began); err != nil {
		return err
	}
	if err := e.awaitTime(ctx, began.Add(cutOff)); err != nil {
		return err
	}
	if err := e.judgeGuard(ctx, cut, began); err != nil {
		return err
	}
	if err := e.nothingFenced(ctx, began); err != nil {
		return err
	}
	e.Progress("connecting them again")
	healed := e.Clock.Now()
	for _, node := range cut {
		if _, err := e.heal(ctx, node); err != nil {
			return err
		}
	}
	if err := e.awaitCalm(ctx, cut, healed); err != nil {
		return err
	}
	if err := e.judgeSteady(ctx, before, began, writePatience); err != nil {
		return err
	}
	return e.endAlarm(ctx, workloads, volumes, cut, began)
}

// alarmNodes are more nodes than the guard believes to be lost, without one that has a
// controller: it is the others' silence that is to be judged.
func (e *Environment) alarmNodes(ctx context.Context) ([]string, error) {
	all := e.view.nodes("")
	avoid, err := e.controllerNodes(ctx)
	if err != nil {
		return nil, err
	}
	leads, err := e.leader(ctx)
	if err != nil {
		return nil, err
	}
	least := max(2, len(all)*massLossPercent/100+1)
	// Those without a controller first; the leader's never.
	slices.SortStableFunc(all, func(a, b string) int {
		return strings.Compare(strconv.FormatBool(slices.Contains(avoid, a)), strconv.FormatBool(slices.Contains(avoid, b)))
	})
	all = slices.DeleteFunc(all, func(node string) bool { return node == leads.Node })
	if len(all) < least {
		return nil, fmt.Errorf("mass-false-alarm cuts %d nodes off and needs another for the controller", least)
	}
	return all[:least], nil
}

// startOneOnEach makes one workload on each of the nodes.
func (e *Environment) startOneOnEach(ctx context.Context, nodes []string) ([]Workload, []volume, error) {
	var workloads []Workload
	for i, node := range nodes {
		w := Workload{Name: fmt.Sprintf("writer-%d", i+1), MaxShares: 2, Replicas: 1}
		if err := e.createOn(ctx, node, w); err != nil {
			return nil, nil, err
		}
		workloads = append(workloads, w)
	}
	volumes, err := e.awaitAllReady(ctx, workloads...)
	if err != nil {
		return nil, nil, err
	}
	return workloads, volumes, e.awaitRecords(ctx, quietWrites, workloads...)
}

// awaitGuard blocks until the driver says of all of the nodes that it holds back.
func (e *Environment) awaitGuard(ctx context.Context, cut []string, began time.Time) error {
	held := func() bool {
		return !slices.ContainsFunc(cut, func(node string) bool {
			return reachability(e.view.driverNode(node)).reason != reasonHeldBack
		})
	}
	err := e.view.await(ctx, cutOff, "the driver says that it holds fencing back", held)
	took := e.Clock.Now().Sub(began)
	detail := "after " + timeline.Round(took)
	for _, node := range cut {
		c := reachability(e.view.driverNode(node))
		detail += fmt.Sprintf("; %s: Reachable %s, %s: %s", node, c.status, c.reason, c.message)
	}
	e.check("the condition of every one of them says that fencing is held back", err == nil, "%s", detail)
	if err == nil {
		e.metric("guard_after_seconds", milli(took))
	}
	return ctx.Err()
}

// judgeGuard checks that the driver's metric and an event about each node say so too.
func (e *Environment) judgeGuard(ctx context.Context, cut []string, began time.Time) error {
	active, err := e.guardActive(ctx)
	if err != nil {
		return err
	}
	e.metric("guard_active", active)
	e.check("the metric of the leader says so", active == 1, "%s is %g", guardMetric, active)
	events, err := e.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reasonHeldBack})
	if err != nil {
		return fmt.Errorf("list the events of the guard: %w", err)
	}
	var told []string
	for _, event := range events.Items {
		if !event.CreationTimestamp.Time.Before(began.Truncate(time.Second)) && slices.Contains(cut, event.InvolvedObject.Name) {
			told = append(told, event.InvolvedObject.Name)
		}
	}
	slices.Sort(told)
	told = slices.Compact(told)
	e.check("an event about every one of them says so", len(told) == len(cut), "events %s about %q", reasonHeldBack, told)
	return nil
}

// awaitCalm blocks until the nodes are well in the eyes of Kubernetes and of the driver.
func (e *Environment) awaitCalm(ctx context.Context, cut []string, healed time.Time) error {
	for _, node := range cut {
		if err := e.view.await(ctx, backTimeout, node+" is back", func() bool { return e.view.isBack(node, healed) }); err != nil {
			return fmt.Errorf("%w: it is %s", err, e.view.describeNode(node))
		}
	}
	calm := e.Clock.Now().Sub(healed)
	e.metric("calm_after_seconds", milli(calm))
	active, err := e.guardActive(ctx)
	if err != nil {
		return err
	}
	e.check("all is well again after the network is", active == 0, "reachable %s after it was connected; %s is %g", timeline.Round(calm), guardMetric, active)
	return nil
}

func (e *Environment) endAlarm(ctx context.Context, workloads []Workload, volumes []volume, cut []string, began time.Time) error {
	for i, w := range workloads {
		if err := e.awaitReplicas(ctx, w, volumes[i]); err != nil {
			return err
		}
	}
	if err := e.judgeAll(ctx, workloads...); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.wholeFigure("Many nodes fall silent at once", began, e.Clock.Now())}
	e.Report.Summary = fmt.Sprintf("%s lost their network at once for %s. %s %s",
		strings.Join(cut, " and "), timeline.Round(cutOff), e.fences(), e.recordsLost())
	return nil
}

// guardActive reads from the leader whether it holds back: 1 if it does.
func (e *Environment) guardActive(ctx context.Context) (float64, error) {
	leads, err := e.leader(ctx)
	if err != nil {
		return 0, err
	}
	return e.driverMetric(ctx, leads.Pod, guardMetric)
}

// driverMetric reads one number of a controller's metrics; 0 if it is not there.
func (e *Environment) driverMetric(ctx context.Context, pod, name string) (float64, error) {
	port, err := e.controllerPort(ctx, pod, metricsPort)
	if err != nil {
		return 0, err
	}
	text, err := e.kube.CoreV1().Pods(driverNamespace).ProxyGet("http", pod, port, "metrics", nil).DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the metrics of %s: %w", pod, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// controllerPort is the number of the controller's port of that name.
func (e *Environment) controllerPort(ctx context.Context, name, port string) (string, error) {
	pod, err := e.kube.CoreV1().Pods(driverNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the port %s of %s: %w", port, name, err)
	}
	for _, c := range pod.Spec.Containers {
		i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port })
		if i >= 0 {
			return fmt.Sprint(c.Ports[i].ContainerPort), nil
		}
	}
	return "", fmt.Errorf("%s has no port %s", name, port)
}
