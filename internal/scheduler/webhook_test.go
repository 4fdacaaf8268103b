package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// review is the request that an API server sends for a new pod. The pod has no namespace of its
// own.
func review(t *testing.T, p *corev1.Pod) []byte {
	t.Helper()
	p = p.DeepCopy()
	namespace := p.Namespace
	p.Namespace = ""
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return reviewOf(t, namespace, raw)
}

func reviewOf(t *testing.T, namespace string, raw []byte) []byte {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "review-uid",
			Operation: admissionv1.Create,
			Namespace: namespace,
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:    runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// panics is an Observer with a bug.
type panics struct{ knows }

func (panics) Volumes(context.Context, *corev1.Pod) ([]Volume, error) { panic("bug") }

func newWebhook(observer observer, ready func() bool) (http.Handler, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	webhook := &webhook{
		DriverName: driver,
		Observer:   observer,
		Ready:      ready,
		Metrics:    newMetrics(registry, yes),
		Clock:      clock.RealClock{},
	}
	return webhook.handler(), registry
}

// admit sends a review and returns the answer, which must allow the pod.
func admit(t *testing.T, handler http.Handler, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	request := httptest.NewRequest(http.MethodPost, steerPath+"?timeout=1s", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, request)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("got %d %s: %v", w.Code, w.Body, err)
	}
	if answer.Kind != "AdmissionReview" || answer.APIVersion != "admission.k8s.io/v1" || answer.Response.UID != "review-uid" {
		t.Errorf("got an answer of %s %s to %q", answer.APIVersion, answer.Kind, answer.Response.UID)
	}
	if !answer.Response.Allowed {
		t.Errorf("got a refusal, want every pod to be allowed: %+v", answer.Response.Result)
	}
	if w.Header().Get("Connection") != "close" {
		t.Error("got a connection that is kept, want one that ends: its replica may be lost next")
	}
	return answer.Response
}

// preferences of a pod after the answer is applied to it.
func preferences(t *testing.T, p *corev1.Pod, response *admissionv1.AdmissionResponse) []string {
	t.Helper()
	if len(response.Patch) == 0 {
		return nil
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil || response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("got patch %s of type %v: %v", response.Patch, response.PatchType, err)
	}
	raw, _ := json.Marshal(p)
	if raw, err = patch.Apply(raw); err != nil {
		t.Fatal(err)
	}
	var changed corev1.Pod
	if err := json.Unmarshal(raw, &changed); err != nil {
		t.Fatal(err)
	}
	terms := []string{"steered: " + changed.Annotations[apiv1.AnnotationSteered]}
	if a := changed.Spec.Affinity; a != p.Spec.Affinity && a != nil {
		terms = append(terms, brief(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	changed.Spec.Affinity = p.Spec.Affinity
	delete(changed.Annotations, apiv1.AnnotationSteered)
	before := p.DeepCopy()
	delete(before.Annotations, apiv1.AnnotationSteered)
	if diff := cmp.Diff(before, &changed, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("more than the affinity and the mark changed:\n%s", diff)
	}
	return terms
}

func annotated(p *corev1.Pod) *corev1.Pod {
	p.Annotations = map[string]string{"example.com/a": "b", apiv1.AnnotationSteered: "forged"}
	return p
}

func optsOut(p *corev1.Pod) *corev1.Pod {
	p.Annotations = map[string]string{apiv1.AnnotationSteering: apiv1.SteeringDisabled}
	return p
}

func TestTheWebhookMarksAPodWithoutPreferences(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t, node("node-a"), claim("data", "pv", "ours"), volume("pv", driver, diskURI("data")))
	handler, _ := newWebhook(startView(t, config), yes)
	want := []string{"steered: false"}
	if diff := cmp.Diff(want, preferences(t, pod("data"), admit(t, handler, review(t, pod("data"))))); diff != "" {
		t.Errorf("want (-) and got (+):\n%s", diff)
	}
}

func TestTheWebhookSteersAPod(t *testing.T) {
	t.Parallel()
	_, config := startAPI(t,
		node("node-a"), node("node-b"), node("node-d"), node("node-c", func(n *apiv1.AzDriverNode) { n.Status.Conditions = nil }),
		claim("data", "pv", "ours"), volume("pv", driver, diskURI("data")),
		azva("data", "node-a", apiv1.RolePrimary, apiv1.AttachmentAttached),
		azva("data", "node-b", apiv1.RoleReplica, apiv1.AttachmentAttached),
		azva("data", "node-c", apiv1.RoleReplica, apiv1.AttachmentAttached),
		claim("theirs", "pv-theirs", "theirs"), volume("pv-theirs", "nfs.example.com", "x"),
		node("node-z", in("1")), class("ours", driver), from(claim("clone", "", "ours"), "PersistentVolumeClaim", "zonal"),
		claim("zonal", "pv-zonal", "ours"), inZones(volume("pv-zonal", driver, diskURI("zonal")), "eastus-2"))
	handler, registry := newWebhook(startView(t, config), yes)
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"of a replicated volume": {pod("data"), []string{
			"steered: true", "100 kubernetes.io/hostname In node-a", "80 kubernetes.io/hostname In node-b",
			"50 kubernetes.io/hostname NotIn node-c",
		}},
		"with annotations of its own": {annotated(pod("data")), []string{
			"steered: true", "100 kubernetes.io/hostname In node-a", "80 kubernetes.io/hostname In node-b",
			"50 kubernetes.io/hostname NotIn node-c",
		}},
		"of a clone": {pod("clone"), []string{
			"steered: true", "50 kubernetes.io/hostname NotIn node-c", "50 topology.disk.csi.azure.com/zone In eastus-2",
		}},
		"that opts out":                        {optsOut(pod("data")), nil},
		"of another driver's volume":           {pod("theirs"), nil},
		"of a claim that is not known (yet)":   {pod("missing"), nil},
		"without claims, if it comes this far": {pod(), nil},
	} {
		if diff := cmp.Diff(c.want, preferences(t, c.pod, admit(t, handler, review(t, c.pod)))); diff != "" {
			t.Errorf("a pod %s: want (-) and got (+):\n%s", name, diff)
		}
	}
	if got := testutil.CollectAndCount(registry, "azuredisk_scheduler_webhook_duration_seconds"); got != 2 {
		t.Errorf("got %d results in the metrics, want steered and unchanged", got)
	}
}

// The webhook never refuses a pod.
func TestTheWebhookAllowsAPodThatItCannotSteer(t *testing.T) {
	t.Parallel()
	good := review(t, pod("data"))
	for name, c := range map[string]struct {
		observer observer
		ready    func() bool
		body     []byte
		result   string
	}{
		"the caches are not filled": {knows{}, no, good, resultNotReady},
		"a bug":                     {panics{}, yes, good, resultFailed},
		"something that is not a pod": {knows{}, yes, reviewOf(t, "default", []byte(`{"spec":{"volumes":"none"}}`)),
			resultFailed},
	} {
		handler, registry := newWebhook(c.observer, c.ready)
		if response := admit(t, handler, c.body); len(response.Patch) != 0 {
			t.Errorf("%s: got the patch %s, want none", name, response.Patch)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, family := range families {
			if family.GetName() == "azuredisk_scheduler_webhook_duration_seconds" {
				for _, m := range family.GetMetric() {
					got += m.GetLabel()[0].GetValue()
				}
			}
		}
		if got != c.result {
			t.Errorf("%s: got the result %q in the metrics, want %q", name, got, c.result)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	large := func(n *apiv1.AzDriverNode) {
		n.Spec.VMSize = "Standard_D4s_v5"
		n.Status.Capacity = &apiv1.NodeCapacity{VMSize: n.Spec.VMSize, MaxDataDisks: 4}
	}
	full := func(n *apiv1.AzDriverNode) { large(n); n.Status.Capacity.ForeignDisks = 4 }
	slow := func(n *apiv1.AzDriverNode) { large(n); n.Status.Capacity.LacksPremium = true }
	gone := func(n *apiv1.AzDriverNode) { n.Status.Conditions = nil }
	// A Node's name may be longer than the value of a label.
	long := strings.Repeat("long.", 20) + "node"
	_, config := startAPI(t, node(long, gone), node("holds", large), node("holds-and-is-full", full), node("is-full", full),
		node("does-not-take-it", slow),
		node("is-not-ready", gone), node("is-free", large))
	volumes := []Volume{
		{
			Name:  "a",
			SKU:   "Premium_LRS",
			Nodes: map[string]DiskState{"holds": Replica, "holds-and-is-full": Replica, "has-no-plug-in": Replica},
		},
		{Name: "b", SKU: "Premium_LRS"},
	}
	got, err := judge(t.Context(), startView(t, config), volumes)
	expect.Must(t, err)
	want := fitness{
		Scores: map[string]int64{"holds": 4},
		Unfit: map[string]Fault{
			"holds-and-is-full": FaultNoRoom,
			"is-full":           FaultNoRoom,
			"does-not-take-it":  faultUnsupported,
			"is-not-ready":      faultNotReady,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-) and got (+):\n%s", diff)
	}
}

func TestTheWebhookServesItsPathOnly(t *testing.T) {
	t.Parallel()
	handler, _ := newWebhook(knows{}, yes)
	for _, path := range []string{"/", "/filter", "/metrics"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}")))
		if w.Code != http.StatusNotFound {
			t.Errorf("POST %s: got %d, want %d", path, w.Code, http.StatusNotFound)
		}
	}
}
