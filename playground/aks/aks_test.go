package aks

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

func TestProfilesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{"", Standard, Enforce, Automatic} {
		if got, err := Parse(string(p)); got != p || err != nil {
			t.Errorf("Parse(%q): got %q, %v", p, got, err)
		}
	}
	if _, err := Parse("AKS"); err == nil {
		t.Error("Parse(AKS): got no error")
	}
}

func TestEachPolicyIsBoundWithTheActionOfTheProfile(t *testing.T) {
	t.Parallel()
	for profile, want := range map[Profile]struct {
		action   string
		baseline bool
	}{Standard: {"Warn", false}, Enforce: {"Deny", false}, Automatic: {"Deny", true}} {
		objects, err := profile.Objects(Endpoint{URL: "https://192.0.2.1:9443", CA: []byte("CA")})
		if err != nil {
			t.Fatal(err)
		}
		var policies, bound []string
		for _, o := range objects {
			switch o.GetKind() {
			case "ValidatingAdmissionPolicy":
				policies = append(policies, o.GetName())
			case "ValidatingAdmissionPolicyBinding":
				bound = append(bound, o.GetName())
				if got := o.Object["spec"].(map[string]any)["validationActions"].([]any)[0]; got != want.action {
					t.Errorf("%s: action of %s: got %v, want %s", profile, o.GetName(), got, want.action)
				}
			}
		}
		if diff := cmp.Diff(policies, bound); diff != "" || len(policies) < 5 {
			t.Errorf("%s: policies without a binding (-policies +bindings), of %d:\n%s", profile, len(policies), diff)
		}
		if got := slices.Contains(policies, "safeguards-baseline"); got != want.baseline {
			t.Errorf("%s: baseline: got %t, want %t", profile, got, want.baseline)
		}
	}
}

func TestNamespacesAreExcludedFromEachSafeguard(t *testing.T) {
	t.Parallel()
	objects, err := Automatic.Objects(Endpoint{URL: "https://192.0.2.1:9443", CA: []byte("CA")})
	if err != nil {
		t.Fatal(err)
	}
	var typed []runtime.Object
	for _, o := range objects {
		var object runtime.Object
		switch o.GetKind() {
		case "ValidatingAdmissionPolicy":
			object = &registrationv1.ValidatingAdmissionPolicy{}
		case "MutatingWebhookConfiguration":
			object = &registrationv1.MutatingWebhookConfiguration{}
		default:
			continue
		}
		if err := convert(o, object); err != nil {
			t.Fatal(err)
		}
		typed = append(typed, object)
	}
	client := fake.NewClientset(typed...)
	if err := Exclude(t.Context(), client, []string{"azure-disk-csi"}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	record := func(name string, conditions []registrationv1.MatchCondition) {
		for _, c := range conditions {
			if c.Name == excludedCondition {
				got[name] = c.Expression
			}
		}
	}
	policies, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies.Items {
		record(p.Name, p.Spec.MatchConditions)
	}
	webhooks, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range webhooks.Items {
		record(c.Name, c.Webhooks[0].MatchConditions)
	}
	const expression = "!(request.namespace in ['kube-system', 'gatekeeper-system', 'azure-arc', 'azure-disk-csi'])"
	want := map[string]string{
		"safeguards-pods": expression, "safeguards-workloads": expression, "safeguards-baseline": expression,
		"safeguards-resource-requests": expression,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions about excluded namespaces (-want +got):\n%s", diff)
	}
}

func TestPortsAreThoseThatTheTableGivesToAListener(t *testing.T) {
	t.Parallel()
	ports := Ports()
	for port, want := range map[int]bool{29603: true, 29613: true, 19100: true, 10250: false} {
		if got := slices.Contains(ports, port); got != want {
			t.Errorf("port %d is taken by a listener: got %t, want %t (%v)", port, got, want, ports)
		}
	}
}

func TestEachFactHasASource(t *testing.T) {
	t.Parallel()
	rows := 0
	for line := range strings.Lines(facts) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 {
			continue
		}
		rows++
		if source := strings.TrimSpace(cells[len(cells)-1]); len(source) < 5 {
			t.Errorf("a fact without a source: %s", line)
		}
	}
	if rows < 40 {
		t.Errorf("facts: got %d, want 40 or more", rows)
	}
}

// ask sends an object through a webhook.
func ask(t *testing.T, path, user string, object, old any) *admissionv1.AdmissionResponse {
	t.Helper()
	raw := func(o any) runtime.RawExtension {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: data}
	}
	request, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Namespace: "ns", Object: raw(object), OldObject: raw(old), UserInfo: authenticationv1.UserInfo{Username: user},
	}})
	if err != nil {
		t.Fatal(err)
	}
	identity := Identity{
		TenantID: "tenant", AuthorityHost: "http://directory",
		ClientID: func(namespace, account string) (string, error) { return "client of " + namespace + "/" + account, nil },
	}
	pool := func(name string) []corev1.Taint {
		if name != "trial" {
			return nil
		}
		return []corev1.Taint{{Key: "azuredisk", Value: "trial", Effect: corev1.TaintEffectNoSchedule}}
	}
	answer := httptest.NewRecorder()
	Webhooks(identity, pool).ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(request))))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("%s: got %d %s: %v", path, answer.Code, answer.Body, err)
	}
	return review.Response
}

func specOf(t *testing.T, response *admissionv1.AdmissionResponse) corev1.PodSpec {
	t.Helper()
	var patch []struct {
		Op, Path string
		Value    corev1.PodSpec
	}
	if err := json.Unmarshal(response.Patch, &patch); err != nil || len(patch) != 1 || patch[0].Path != "/spec" {
		t.Fatalf("patch: got %s: %v", response.Patch, err)
	}
	return patch[0].Value
}

func TestWorkloadIdentityChangesEachContainerThatIsNotSkipped(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{skipContainers: "sidecar; other"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "account",
			InitContainers:     []corev1.Container{{Name: "init"}},
			Containers: []corev1.Container{
				{Name: "own", Env: []corev1.EnvVar{{Name: "AZURE_CLIENT_ID", Value: "mine"}}}, {Name: "sidecar"}, {Name: "other"},
			},
		},
	}
	spec := specOf(t, ask(t, "/mutate-v1-pod", "anyone", pod, nil))
	got := map[string]string{}
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		got[c.Name] = ""
		if len(c.VolumeMounts) == 1 {
			got[c.Name] = c.Env[0].Value
		}
	}
	want := map[string]string{"init": "client of ns/account", "own": "mine", "sidecar": "", "other": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("client IDs of the containers with the token (-want +got):\n%s", diff)
	}
	if len(spec.Volumes) != 1 || spec.Volumes[0].Projected == nil {
		t.Errorf("volumes: got %v, want the projected token", spec.Volumes)
	}
}

func TestRequestsAreRaised(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) corev1.ResourceList {
		if cpu == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	least := list("100m", "100Mi")
	for name, c := range map[string]struct{ requests, limits, wantRequests, wantLimits corev1.ResourceList }{
		"no resources get the defaults":     {nil, nil, list("500m", "2Gi"), list("500m", "2Gi")},
		"small requests get the least":      {list("10m", "32Mi"), nil, least, nil},
		"small limits get the least":        {list("10m", "32Mi"), list("20m", "64Mi"), least, least},
		"requests above the limit are less": {list("2", "2Gi"), list("1", "1Gi"), list("1", "1Gi"), list("1", "1Gi")},
		"sufficient resources stay":         {list("200m", "200Mi"), list("1", "1Gi"), list("200m", "200Mi"), list("1", "1Gi")},
	} {
		pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}},
		}}}
		raiseRequests(&pod)
		want := corev1.ResourceRequirements{Requests: c.wantRequests, Limits: c.wantLimits}
		if diff := cmp.Diff(want, pod.Spec.Containers[0].Resources); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestATaintOfAPoolIsNotRemovedByAUser(t *testing.T) {
	t.Parallel()
	taint := corev1.Taint{Key: "azuredisk", Value: "trial", Effect: corev1.TaintEffectNoSchedule}
	node := func(pool string, taints ...corev1.Taint) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.azure.com/agentpool": pool}},
			Spec:       corev1.NodeSpec{Taints: taints},
		}
	}
	other := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoExecute}
	for name, c := range map[string]struct {
		user      string
		node, old corev1.Node
		want      bool
	}{
		"a user removes the pool's taint":        {"me", node("trial"), node("trial", taint), false},
		"AKS removes the pool's taint":           {"kubernetes-super-admin", node("trial"), node("trial", taint), true},
		"a user removes another taint":           {"me", node("trial", taint), node("trial", taint, other), true},
		"a user removes it in a pool without it": {"me", node("nodepool1"), node("nodepool1", taint), true},
	} {
		if got := ask(t, "/validate-node", c.user, c.node, c.old).Allowed; got != c.want {
			t.Errorf("%s: allowed: got %t, want %t", name, got, c.want)
		}
	}
}

func TestTheEnforcerKeepsEachWebhookOutOfTheNamespacesOfAKS(t *testing.T) {
	t.Parallel()
	selector := func(requirements ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
		own := metav1.LabelSelectorRequirement{Key: "mine", Operator: metav1.LabelSelectorOpExists}
		return &metav1.LabelSelector{MatchExpressions: append(requirements, own)}
	}
	annotated := func(value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{"admissions.enforcer/disabled": value}}
	}
	for name, c := range map[string]struct {
		meta     metav1.ObjectMeta
		selector *metav1.LabelSelector
		want     bool
	}{
		"no selector":              {want: true},
		"a selector of its own":    {selector: selector(), want: true},
		"both expressions":         {selector: selector(slices.Clone(restriction)...)},
		"disabled by annotation":   {meta: annotated("true")},
		"disabled by a label":      {meta: metav1.ObjectMeta{Labels: map[string]string{"admissions.enforcer/disabled": "true"}}},
		"an annotation, but false": {meta: annotated("false"), want: true},
	} {
		selectors := []*metav1.LabelSelector{c.selector}
		same := func(s **metav1.LabelSelector) **metav1.LabelSelector { return s }
		if got := restrictAll(c.meta, selectors, same); got != c.want {
			t.Errorf("%s: changed: got %t, want %t", name, got, c.want)
		}
		if c.want && restrictAll(c.meta, selectors, same) {
			t.Errorf("%s: it is changed again", name)
		}
	}
}

func TestTheNodeProblemDetectorShowsTheEventsOfTheVM(t *testing.T) {
	t.Parallel()
	node, now := &corev1.Node{}, metav1.Now()
	condition := func() corev1.NodeCondition {
		return node.Status.Conditions[slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == vmEventScheduled
		})]
	}
	if !detect(node, nil, now) || condition().Status != corev1.ConditionFalse || len(node.Status.Conditions) != 10 {
		t.Errorf("at first: got %v", node.Status.Conditions)
	}
	events := []Event{{Type: "Freeze", NotBefore: time.Date(2026, 3, 2, 19, 1, 45, 0, time.UTC)}}
	if !detect(node, events, now) || condition().Message != "Freeze Scheduled: Mon, 02 Mar 2026 19:01:45 UTC" {
		t.Errorf("with a freeze: got %+v", condition())
	}
	if detect(node, events, now) {
		t.Error("the same event changes the conditions again")
	}
	if !detect(node, nil, now) || condition().Status != corev1.ConditionFalse {
		t.Errorf("after the freeze: got %+v", condition())
	}
}

func TestANodeGetsTheSettingsOfItsPool(t *testing.T) {
	t.Parallel()
	settings := Settings{
		Labels: map[string]string{"azuredisk": "trial"},
		Taints: []corev1.Taint{{Key: "azuredisk", Value: "trial", Effect: corev1.TaintEffectNoSchedule}},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	configure(node, settings)
	if node.Labels["azuredisk"] != "trial" || node.Labels["a"] != "b" || len(node.Spec.Taints) != 1 {
		t.Errorf("got %v %v, want the label and the taint of the pool besides", node.Labels, node.Spec.Taints)
	}
	if configure(node, settings) {
		t.Error("it is changed again")
	}
}
