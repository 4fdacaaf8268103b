package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/poll"
	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/evidence"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// SetUpTimeout bounds each step of the preparation.
	SetUpTimeout = 2 * time.Minute
	// scenarioLabel is on everything that a scenario makes.
	scenarioLabel = "playground.azuredisk/scenario"
)

// Environment is what a scenario runs in.
type Environment struct {
	Options
	// Report is to be filled by the scenario.
	Report *timeline.Report
	// Namespace holds the scenario's workloads.
	Namespace string
	// Collector receives the reports of the recorders.
	Collector *recorder.Collector

	// Kube is a client with the administrator's rights, View what the watches show.
	Kube kubernetes.Interface
	View *observer.View
	// Events is the timeline, Azure the record of calls to azuresim.
	Events *timeline.Log
	Azure  *evidence.AzureLog

	// driver is the name of the CSI driver.
	driver        string
	logs          *evidence.LogBook
	collectorURL  string
	stopCollector func() error
	stopView      context.CancelFunc

	mu      sync.Mutex
	repairs []repair
}

func newEnvironment(ctx context.Context, name string, o Options, report *timeline.Report) (*Environment, error) {
	config, err := o.Cluster.RESTConfig()
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	admin, err := o.Cluster.AzureAdmin(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.Cluster.LoadImage(ctx, o.RecorderImage); err != nil {
		return nil, fmt.Errorf("load the recorder's image: %w", err)
	}
	env := &Environment{
		Options:   o,
		Report:    report,
		Kube:      kube,
		Events:    &timeline.Log{},
		Collector: recorder.NewCollector(o.Clock),
		Azure:     &evidence.AzureLog{Admin: admin, Node: o.Cluster.NodeOfVM},
	}
	if err := env.serveCollector(ctx); err != nil {
		return nil, err
	}
	namespace, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: name + "-", Labels: map[string]string{scenarioLabel: name},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a namespace: %w", err), env.stopCollector())
	}
	env.Namespace = namespace.Name
	viewCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	env.stopView = cancel
	env.View, err = observer.NewView(viewCtx, kube, dyn, env.Namespace, observer.NewObserver(env.Events, o.Clock))
	if err != nil {
		return nil, errors.Join(err, env.close(ctx))
	}
	driver, err := installedDriver(ctx, kube)
	if err != nil {
		return nil, errors.Join(err, env.close(ctx))
	}
	env.driver = driver.Name
	env.Metric("attach_required", ptr.Deref(driver.Spec.AttachRequired, true))
	env.logs = evidence.NewLogBook(kube, o.Clock)
	env.logs.Follow(viewCtx)
	return env, nil
}

// installedDriver returns the CSIDriver that the driver's chart has made. Another driver may be
// there beside it.
func installedDriver(ctx context.Context, kube kubernetes.Interface) (*storagev1.CSIDriver, error) {
	list, err := kube.StorageV1().CSIDrivers().List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=azuredisk"})
	if err != nil {
		return nil, fmt.Errorf("list the CSIDrivers: %w", err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("found %d CSIDrivers of the driver's chart, want 1: install the driver (`playground driver install`)", len(list.Items))
	}
	return &list.Items[0], nil
}

// serveCollector listens on a loopback port of the host, which the playground makes
// reachable for pods.
func (e *Environment) serveCollector(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the recorders: %w", err)
	}
	server := &http.Server{Handler: e.Collector.Handler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	e.stopCollector = func() error {
		err := server.Close()
		if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
			return errors.Join(err, ended)
		}
		return err
	}
	address, err := e.Cluster.Expose(ctx, listener.Addr().String())
	if err != nil {
		return errors.Join(fmt.Errorf("make the collector reachable for pods: %w", err), e.stopCollector())
	}
	e.collectorURL = "http://" + address
	return nil
}

// close repairs what is still broken, ends the watches and, unless the user keeps
// them, has the scenario's objects deleted. It does not wait for Azure to be done with
// the disks.
func (e *Environment) close(ctx context.Context) error {
	err := e.RepairAll(ctx)
	ctx, cancel := context.WithTimeout(ctx, SetUpTimeout)
	defer cancel()
	e.stopView()
	err = errors.Join(err, e.stopCollector())
	if e.Keep {
		return err
	}
	if deleted := e.Kube.CoreV1().Namespaces().Delete(ctx, e.Namespace, metav1.DeleteOptions{}); deleted != nil {
		return errors.Join(err, fmt.Errorf("delete the namespace %s: %w", e.Namespace, deleted))
	}
	return err
}

// Check records whether something held.
func (e *Environment) Check(name string, passed bool, format string, args ...any) {
	e.Report.Checks = append(e.Report.Checks, timeline.Check{
		Name:   name,
		Passed: passed,
		Detail: fmt.Sprintf(format, args...),
	})
}

// Metric records a number.
func (e *Environment) Metric(name string, value any) { e.Report.Metrics[name] = value }

// explain says how the scenario's pods are and adds what the driver and Azure did to
// the timeline, for a scenario that could not be completed.
func (e *Environment) explain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, SetUpTimeout)
	defer cancel()
	var reasons []error
	for _, pod := range e.View.AllPods() {
		reasons = append(reasons, fmt.Errorf("pod %s is %s", pod.Name, observer.DescribePod(pod)))
	}
	// What cannot be gathered is missing in the timeline; the reason why the scenario
	// was not completed matters more.
	_, _ = e.AddEvidence(ctx, e.Report.Started)
	return errors.Join(reasons...)
}

// AwaitTime blocks until that time.
func (e *Environment) AwaitTime(ctx context.Context, at time.Time) error {
	select {
	case <-e.Clock.After(at.Sub(e.Clock.Now())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Poll tries again and again, after that pause, until it succeeds. It is for what no watch shows.
func (e *Environment) Poll(ctx context.Context, limit, pause time.Duration, what string, try func(context.Context) error) error {
	return poll.On(ctx, e.Clock, limit, pause, what, try)
}
