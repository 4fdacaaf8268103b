package chart_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/scheduler"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/webhookcert"
)

// webhookUnderTest is the webhook of the chart, behind a real API server. Only its address differs
// from the chart's: there is no Service.
type webhookUnderTest struct {
	kube       client.Client
	namespace  string
	name       string
	registry   *prometheus.Registry
	stop       func()
	lastNumber int
}

func startWebhook(t *testing.T) *webhookUnderTest {
	t.Helper()
	w := &webhookUnderTest{
		kube:      apiserver.Client(t),
		namespace: apiserver.Namespace(t),
		registry:  prometheus.NewRegistry(),
	}
	list := objects(t, render(t))
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	from := find(t, list, "MutatingWebhookConfiguration", release+"-scheduler")
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, configuration))
	secret := find(t, list, "Secret", release+"-scheduler-webhook")
	secret.SetNamespace(w.namespace)
	listeners := [2]net.Listener{}
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	w.name = configuration.Webhooks[0].Name
	url := "https://localhost:" + port(listeners[1]) + *configuration.Webhooks[0].ClientConfig.Service.Path
	configuration.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url}
	for _, object := range []client.Object{configuration, secret} {
		must(t, w.kube.Create(t.Context(), object))
		t.Cleanup(func() { _ = w.kube.Delete(context.Background(), object) })
	}
	certificates, err := webhookcert.NewClient(apiserver.Config(t))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- scheduler.Run(ctx, scheduler.Options{
			Config:          apiserver.Config(t),
			Namespace:       w.namespace,
			DriverName:      config.DriverName,
			Listener:        listeners[0],
			WebhookListener: listeners[1],
			WebhookCertificate: webhookcert.New(webhookcert.Options{
				Client:        certificates,
				Secret:        client.ObjectKeyFromObject(secret),
				Configuration: configuration.Name,
				Names:         []string{"localhost"},
				Clock:         clock.RealClock{},
			}),
			MaxRequestBytes: 1 << 20,
			Registry:        w.registry,
			Clock:           clock.RealClock{},
		})
	}()
	w.stop = func() {
		if cancel(); ended != nil {
			if err := <-ended; err != nil {
				t.Error(err)
			}
			ended = nil
		}
	}
	t.Cleanup(w.stop)
	return w
}

// create creates a pod through the API server, and returns its preferred node affinity.
func (w *webhookUnderTest) create(t *testing.T, pod *corev1.Pod, options ...client.CreateOption) []string {
	t.Helper()
	pod = pod.DeepCopy()
	w.lastNumber++
	pod.Name += fmt.Sprintf("-%d", w.lastNumber)
	if err := w.kube.Create(t.Context(), pod, options...); err != nil {
		t.Fatalf("the API server refused a pod: %v", err)
	}
	t.Cleanup(func() { _ = w.kube.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	var terms []string
	for _, term := range pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		for _, e := range term.Preference.MatchExpressions {
			terms = append(terms, fmt.Sprintf("%d %s %s %s", term.Weight, e.Key, e.Operator, strings.Join(e.Values, ",")))
		}
	}
	return terms
}

// requests is the number of answers that the webhook has given.
func (w *webhookUnderTest) requests(t *testing.T) (count uint64) {
	t.Helper()
	families, err := w.registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == "azuredisk_scheduler_webhook_duration_seconds" {
			for _, metric := range family.GetMetric() {
				count += metric.GetHistogram().GetSampleCount()
			}
		}
	}
	return count
}

// failedOpen is the number of pods that the API server created without the webhook, by its own
// metric.
func (w *webhookUnderTest) failedOpen(t *testing.T) (count int) {
	t.Helper()
	own := apiserver.Config(t)
	own.GroupVersion, own.NegotiatedSerializer = &corev1.SchemeGroupVersion, runtime.NewSimpleNegotiatedSerializer(
		runtime.SerializerInfo{})
	kube, err := rest.UnversionedRESTClientFor(own)
	must(t, err)
	text, err := kube.Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, `apiserver_admission_webhook_fail_open_count{name="`+w.name+`"`) {
			value, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " "):]))
			must(t, err)
			count += value
		}
	}
	return count
}

// TestTheWebhookOfTheChart creates pods through a real API server with the chart's webhook: with
// it, without it, and where it does not answer. A real kube-scheduler without any configuration
// follows the preferences.
func TestTheWebhookOfTheChart(t *testing.T) {
	w := startWebhook(t)
	for i := range 5 {
		name := fmt.Sprintf("steered-%d", i)
		create := driverNode(w.namespace, name)
		if i == 1 {
			create = lost(create)
		}
		createWithStatus(t, w.kube, clusterNode(name), create)
	}
	claim, volume := boundClaim(w.namespace, "steered")
	createWithStatus(t, w.kube, volume, claim, attachment(w.namespace, claim.Name, "steered-3"),
		attachment(w.namespace, claim.Name, "steered-1"))
	pod := podWith(w.namespace, "steered", claim.Name)
	pod.Spec.SchedulerName = corev1.DefaultSchedulerName
	want := []string{"80 kubernetes.io/hostname In steered-3", "50 kubernetes.io/hostname NotIn steered-1"}
	eventually(t, "the API server trusts the webhook, and its caches are full", func() error {
		if got := w.create(t, pod, client.DryRunAll); !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})

	t.Run("a pod's own preferences stay", func(t *testing.T) {
		own := pod.DeepCopy()
		own.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 100,
				Preference: corev1.NodeSelectorTerm{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpExists}},
				},
			}},
		}}
		if got, want := w.create(t, own), append([]string{"20 pool Exists "}, want...); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	t.Run("other pods do not reach the webhook", func(t *testing.T) {
		bound, excluded := pod.DeepCopy(), pod.DeepCopy()
		bound.Spec.NodeName, excluded.Namespace = "steered-0", metav1.NamespaceSystem
		before := w.requests(t)
		for which, other := range map[string]*corev1.Pod{
			"without volumes":          podWith(w.namespace, "plain"),
			"that has a node":          bound,
			"in an excluded namespace": excluded,
		} {
			if got := w.create(t, other); got != nil {
				t.Errorf("a pod %s: got %v, want no preferences", which, got)
			}
		}
		if after := w.requests(t); after != before {
			t.Errorf("got %d requests for pods that have nothing to do with the driver, want none", after-before)
		}
	})
	t.Run("a kube-scheduler without configuration puts the pod on the replica", func(t *testing.T) {
		runKubeScheduler(t, "--kubeconfig", apiserver.Kubeconfig(t), "--leader-elect=false")
		for i := range 3 {
			placed := pod.DeepCopy()
			placed.Name = fmt.Sprintf("placed-%d", i)
			createWithStatus(t, w.kube, placed)
			eventually(t, "the pod is scheduled", func() error {
				if err := w.kube.Get(t.Context(), client.ObjectKeyFromObject(placed), placed); err != nil {
					return err
				}
				if placed.Spec.NodeName == "" {
					return fmt.Errorf("it is not: %v", placed.Status.Conditions)
				}
				return nil
			})
			if placed.Spec.NodeName != "steered-3" {
				t.Errorf("got %s, want the replica's node steered-3", placed.Spec.NodeName)
			}
		}
	})
	t.Run("a webhook that is down, silent or has an expired certificate does not block pods",
		func(t *testing.T) { failsOpen(t, w, pod) })
}

func failsOpen(t *testing.T, w *webhookUnderTest, pod *corev1.Pod) {
	unsteered := func(what string) {
		t.Helper()
		before := w.failedOpen(t)
		if got := w.create(t, pod, client.DryRunAll); got != nil {
			t.Errorf("%s: got %v, want no preferences", what, got)
		}
		if after := w.failedOpen(t); after != before+1 {
			t.Errorf("%s: the API server counts %d pods without the webhook after %d, want one more: see docs/guides/scheduler.md", what, after, before)
		}
	}
	w.stop()
	unsteered("a webhook that is down")

	// From here on, a server of the test stands for the webhook. It counts the connections that it
	// gets.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	calls := &counted{Listener: listener}
	t.Cleanup(func() { calls.Close() })
	expired, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host:   "localhost",
		MaxAge: time.Minute,
	})
	must(t, err)
	w.direct(t, "https://localhost:"+port(listener), expired)
	eventually(t, "the API server calls the silent webhook", func() error {
		if _ = w.create(t, pod, client.DryRunAll); calls.opened() == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	unsteered("a webhook that does not answer")

	// client-go makes certificates that are valid from an hour ago: a minute later, it expired.
	pair, err := tls.X509KeyPair(expired, key)
	must(t, err)
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the API server sends a pod to a webhook whose certificate has expired")
		}),
	}
	go func() { _ = server.Serve(tls.NewListener(calls, &tls.Config{Certificates: []tls.Certificate{pair}})) }()
	t.Cleanup(func() { _ = server.Close() })
	before := calls.opened()
	unsteered("a webhook with an expired certificate")
	if calls.opened() == before {
		t.Error("the API server did not call the webhook with the expired certificate")
	}
}

// counted counts connections.
type counted struct {
	net.Listener
	accepted atomic.Int64
	pending  chan net.Conn
	once     sync.Once
}

// opened is the number of connections so far. They stay open, without an answer, until Accept
// returns them.
func (c *counted) opened() int64 {
	c.once.Do(func() {
		c.pending = make(chan net.Conn, 1000)
		go func() {
			for {
				conn, err := c.Listener.Accept()
				if err != nil {
					close(c.pending)
					return
				}
				c.accepted.Add(1)
				c.pending <- conn
			}
		}()
	})
	return c.accepted.Load()
}

func (c *counted) Accept() (net.Conn, error) {
	conn, open := <-c.pending
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// direct points the configuration to another server.
func (w *webhookUnderTest) direct(t *testing.T, url string, authorities []byte) {
	t.Helper()
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	must(t, w.kube.Get(t.Context(), client.ObjectKey{Name: release + "-scheduler"}, &configuration))
	configuration.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authorities}
	must(t, w.kube.Update(t.Context(), &configuration))
}

func port(listener net.Listener) string {
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// A server-side apply of the chart conflicts with whatever else has changed a field of it.
func TestTheAdmissionsEnforcerOfAKSHasNothingToChange(t *testing.T) {
	t.Parallel()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	from := find(t, objects(t, render(t)), "MutatingWebhookConfiguration", release+"-scheduler")
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, configuration))
	for _, want := range []metav1.LabelSelectorRequirement{
		{Key: "control-plane", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
		{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}},
	} {
		got := configuration.Webhooks[0].NamespaceSelector.MatchExpressions
		if !slices.ContainsFunc(got, func(r metav1.LabelSelectorRequirement) bool { return reflect.DeepEqual(r, want) }) {
			t.Errorf("namespaces of the webhook: got %v, want %v among them", got, want)
		}
	}
}
