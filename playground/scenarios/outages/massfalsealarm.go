package outages

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
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

// MassFalseAlarm is the scenario mass-false-alarm.
var MassFalseAlarm = scenario.Scenario{
	Name:    "mass-false-alarm",
	Summary: "many nodes lose their network at once, and nothing must be fenced",
	Title:   "Many nodes stop reporting at once",
	Latency: "realistic",
	Run:     massFalseAlarm,
}

// massFalseAlarm cuts off at once more nodes than can be believed to have died. Their
// pods run on and write; so it is the network that is broken, and nothing is to be fenced.
func massFalseAlarm(ctx context.Context, e *scenario.Environment) error {
	cut, err := alarmNodes(ctx, e)
	if err != nil {
		return err
	}
	e.Progress("making a pod that writes on each of %s", strings.Join(cut, " and "))
	workloads, volumes, err := startOneOnEach(ctx, e, cut)
	if err != nil {
		return err
	}
	if err := e.AwaitEarlierDisks(ctx); err != nil {
		return err
	}
	before, err := e.SteadyOf(workloads, volumes)
	if err != nil {
		return err
	}
	e.Progress("cutting off %s, for %s", strings.Join(cut, " and "), cutOff)
	began := e.Clock.Now()
	for _, node := range cut {
		if _, err := e.Partition(ctx, node); err != nil {
			return err
		}
	}
	e.Metric("nodes_cut_off", len(cut))
	if err := awaitGuard(ctx, e, cut, began); err != nil {
		return err
	}
	if err := e.AwaitTime(ctx, began.Add(cutOff)); err != nil {
		return err
	}
	if err := judgeGuard(ctx, e, cut, began); err != nil {
		return err
	}
	if err := e.NothingFenced(ctx, began); err != nil {
		return err
	}
	e.Progress("connecting them again")
	healed := e.Clock.Now()
	for _, node := range cut {
		if _, err := e.Heal(ctx, node); err != nil {
			return err
		}
	}
	if err := awaitCalm(ctx, e, cut, healed); err != nil {
		return err
	}
	if err := e.JudgeSteady(ctx, before, began, WritePatience); err != nil {
		return err
	}
	return endAlarm(ctx, e, workloads, volumes, cut, began)
}

// alarmNodes are more nodes than the guard believes to be lost, without one that has a
// controller: the scenario judges how it reacts to the others' silence.
func alarmNodes(ctx context.Context, e *scenario.Environment) ([]string, error) {
	all := e.View.Nodes("")
	avoid := e.ControllerNodes()
	leads, err := e.Leader(ctx)
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
func startOneOnEach(ctx context.Context, e *scenario.Environment, nodes []string) ([]scenario.Workload, []observer.Volume,
	error) {
	var workloads []scenario.Workload
	for i, node := range nodes {
		w := scenario.Workload{
			Name:      fmt.Sprintf("writer-%d", i+1),
			MaxShares: 2,
			Replicas:  1,
		}
		if err := e.CreateOn(ctx, node, w); err != nil {
			return nil, nil, err
		}
		workloads = append(workloads, w)
	}
	volumes, err := e.AwaitAllReady(ctx, workloads...)
	if err != nil {
		return nil, nil, err
	}
	return workloads, volumes, e.AwaitRecords(ctx, scenario.RecordsBeforeFault, workloads...)
}

// awaitGuard blocks until the driver says of all of the nodes that it holds back.
func awaitGuard(ctx context.Context, e *scenario.Environment, cut []string, began time.Time) error {
	held := func() bool {
		return !slices.ContainsFunc(cut, func(node string) bool {
			return observer.Reachability(e.View.DriverNode(node)).Reason != reasonHeldBack
		})
	}
	err := e.View.Await(ctx, cutOff, "the driver says that it holds fencing back", held)
	took := e.Clock.Now().Sub(began)
	detail := "after " + timeline.Round(took)
	for _, node := range cut {
		c := observer.Reachability(e.View.DriverNode(node))
		detail += fmt.Sprintf("; %s: Reachable %s, %s: %s", node, c.Status, c.Reason, c.Message)
	}
	e.Check("the condition of every one of them says that fencing is held back", err == nil, "%s", detail)
	if err == nil {
		e.Metric("guard_after_seconds", scenario.Seconds(took))
	}
	return ctx.Err()
}

// judgeGuard checks that the driver's metric and an event about each node say so too.
func judgeGuard(ctx context.Context, e *scenario.Environment, cut []string, began time.Time) error {
	active, err := guardActive(ctx, e)
	if err != nil {
		return err
	}
	e.Metric("guard_active", active)
	e.Check("the metric of the leader says so", active == 1, "%s is %g", guardMetric, active)
	events, err := e.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: "reason=" + reasonHeldBack})
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
	e.Check("an event about every one of them says so", len(told) == len(cut), "events %s about %q", reasonHeldBack, told)
	return nil
}

// awaitCalm blocks until Kubernetes and the driver report the nodes as healthy.
func awaitCalm(ctx context.Context, e *scenario.Environment, cut []string, healed time.Time) error {
	for _, node := range cut {
		if err := e.View.Await(ctx, scenario.BackTimeout, node+" is back",
			func() bool { return e.View.IsBack(node, healed) }); err != nil {
			return fmt.Errorf("%w: it is %s", err, e.View.DescribeNode(node))
		}
	}
	calm := e.Clock.Now().Sub(healed)
	e.Metric("calm_after_seconds", scenario.Seconds(calm))
	active, err := guardActive(ctx, e)
	if err != nil {
		return err
	}
	e.Check("all is well again after the network is", active == 0, "reachable %s after it was connected; %s is %g",
		timeline.Round(calm), guardMetric, active)
	return nil
}

func endAlarm(ctx context.Context, e *scenario.Environment, workloads []scenario.Workload, volumes []observer.Volume,
	cut []string, began time.Time) error {
	for i, w := range workloads {
		if err := e.AwaitReplicas(ctx, w, volumes[i]); err != nil {
			return err
		}
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	e.Report.Figures = []timeline.Figure{e.WholeFigure("Many nodes stop reporting at once", began, e.Clock.Now())}
	e.Report.Summary = fmt.Sprintf("%s lost their network at once for %s. %s %s",
		strings.Join(cut, " and "), timeline.Round(cutOff), e.Fences(), e.RecordsLost())
	return nil
}

// guardActive reads from the leader whether it holds back: 1 if it does.
func guardActive(ctx context.Context, e *scenario.Environment) (float64, error) {
	leads, err := e.Leader(ctx)
	if err != nil {
		return 0, err
	}
	return driverMetric(ctx, e, leads.Pod, guardMetric)
}

// driverMetric reads one number of a controller's metrics; 0 if it is not there.
func driverMetric(ctx context.Context, e *scenario.Environment, pod, name string) (float64, error) {
	port, err := controllerPort(e, pod, metricsPort)
	if err != nil {
		return 0, err
	}
	text, err := e.Kube.CoreV1().Pods(observer.DriverNamespace).ProxyGet("http", pod, port, "metrics", nil).DoRaw(ctx)
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
func controllerPort(e *scenario.Environment, name, port string) (string, error) {
	pod := e.View.DriverPod(name)
	if pod == nil {
		return "", fmt.Errorf("find the port %s of %s: there is no such pod", port, name)
	}
	for _, c := range pod.Spec.Containers {
		i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port })
		if i >= 0 {
			return fmt.Sprint(c.Ports[i].ContainerPort), nil
		}
	}
	return "", fmt.Errorf("%s has no port %s", name, port)
}
