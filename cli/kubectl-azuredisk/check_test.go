package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// plain is a text with single spaces.
func plain(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// gatekeeper makes a constraint about the host that Gatekeeper would enforce.
func (l *lab) gatekeeper(t *testing.T) {
	t.Helper()
	const group, kind = "constraints.gatekeeper.sh", "K8sTestHostFilesystem"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "k8stesthostfilesystem." + group},
		"spec": map[string]any{
			"group": group, "scope": "Cluster",
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": "k8stesthostfilesystem",
				"singular": "k8stesthostfilesystem"},
			"versions": []any{map[string]any{"name": "v1beta1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	must(t, l.kube.Create(t.Context(), crd))
	t.Cleanup(func() { _ = l.kube.Delete(context.Background(), crd) })
	expect.Eventually(t, "the API server takes constraints", func() bool {
		constraint := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1beta1", "kind": kind, "metadata": map[string]any{"name": "host"},
			"spec": map[string]any{"match": map[string]any{"excludedNamespaces": []any{"kube-*"}}},
		}}
		err := l.kube.Create(t.Context(), constraint)
		if err != nil && !meta.IsNoMatchError(err) {
			t.Log(err)
		}
		return err == nil
	})
}

// TestChecksOverARealAPIServer checks the installation of the lab, in which nothing of the chart
// runs.
func TestChecksOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	l.gatekeeper(t)
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "privileged"}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		},
	}}}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: "!object.spec.containers.exists(c, c.?securityContext.?privileged.orValue(false))",
	}}
	must(t, l.kube.Create(t.Context(), policy))
	t.Cleanup(func() { _ = l.kube.Delete(context.Background(), policy) })
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "privileged"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, []admissionv1.ValidationAction{admissionv1.Deny}
	must(t, l.kube.Create(t.Context(), binding))
	t.Cleanup(func() { _ = l.kube.Delete(context.Background(), binding) })
	for name, test := range map[string]struct {
		args     []string
		code     int
		requests int32
		want     []string
	}{
		"an installation": {[]string{"doctor"}, 2, 20, []string{
			"Definitions OK", "PreviewDefinitions OK", "Controller Failed there is no Deployment of the controller", "Leader OK",
			"Admission OK", "FailClosedWebhooks OK",
			"Registered OK", "Heartbeats OK", "VolumeAttachments OK", "Writes OK", "What to do:",
		}},
		"an installation, without rights": {[]string{"doctor", "--as", "stranger"}, 3, 21, []string{
			"Definitions CannotTell customresourcedefinitions.apiextensions.k8s.io: not allowed",
			"Admission CannotTell trial writes: not allowed", "0 ok",
		}},
		"a cluster": {[]string{"preflight"}, 2, 12, []string{
			"Kubernetes OK", "OtherDriver Warning the CSIDriver disk.csi.azure.com of another driver is left", "HostPorts OK",
			"SnapshotDefinitions Warning", "Policies Failed the constraint K8sTestHostFilesystem host of Gatekeeper is enforced; " +
				"ValidatingAdmissionPolicy privileged is enforced by privileged",
			"SKUs CannotTell", "az vm list-skus --location eastus --resource-type disks",
			"--subscription 00000000-0000-0000-0000-000000000001 --output table",
		}},
		"an output that is not known": {[]string{"doctor", "-o", "xml"}, 64, 0, []string{"expected json or yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			var count atomic.Int32
			l.wrap = func(c *rest.Config) *rest.Config {
				c.Wrap(func(next http.RoundTripper) http.RoundTripper { return requests{next, &count} })
				return c
			}
			text, code := l.run(t, test.args...)
			if code != test.code || count.Load() != test.requests {
				t.Errorf("got exit code %d after %d requests, want %d after %d:\n%s", code, count.Load(), test.code,
					test.requests, text)
			}
			for _, want := range test.want {
				if !strings.Contains(plain(text), want) {
					t.Errorf("got:\n%s\nwant a text with %q", text, want)
				}
			}
		})
	}
	t.Run("as JSON", func(t *testing.T) {
		text, code := l.run(t, "preflight", "-o", "json")
		var report checks.Report
		err := json.Unmarshal([]byte(text), &report)
		if err != nil || code != 2 || len(report.Lines) != len(checks.PreflightChecks()) {
			t.Errorf("got %v, exit code %d and %d lines, want a line for each check and 2:\n%s", err, code, len(report.Lines), text)
		}
	})
}

// deploy makes a Deployment of the chart. Nothing runs its pods.
func (l *lab) deploy(t *testing.T, component string) {
	t.Helper()
	labels := map[string]string{explain.LabelPartOf: "azuredisk", "app.kubernetes.io/component": component}
	l.put(t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "disks-" + component, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: component, Image: "x", Args: []string{"--driver-name=disk.csi.azure.com", "--failover-enabled=false"},
				}}},
			},
		},
	})
}

// TestWhatIfOverARealAPIServer asks about the lab, in which cart-old on node a has no controller.
func TestWhatIfOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	for name, test := range map[string]struct {
		args     []string
		code     int
		requests int32
		want     []string
	}{
		"a node": {[]string{"what-if", "node", "a"}, 2, 9, []string{
			"If node a is lost: 0 of 1 pods find their disks attached, 0 wait for Azure, and 1 need an action.",
			l.namespace + " cart-old a Stuck NoOwner: no controller would re-create it",
			"What to do: NoOwner: delete the pod by force",
			"Neither the webhook nor the extender is deployed",
		}},
		"a node that is drained": {[]string{"what-if", "node/a", "--drain"}, 2, 9,
			[]string{"If node a is drained", "kubectl drain refuses it"}},
		"a zone": {[]string{"what-if", "zone", "eastus-1"}, 2, 9,
			[]string{"zone eastus-1 is lost, with all of its 2 nodes at once"}},
		"a zone by its number": {[]string{"what-if", "zone", "1"}, 2, 9, []string{"with all of its 2 nodes"}},
		"a node that is not there": {[]string{"what-if", "node", "x"}, 4, 9,
			[]string{"there is no node x"}},
		"without rights": {[]string{"what-if", "node", "a", "--as", "stranger"}, 3, 10,
			[]string{"cannot list nodes: not allowed"}},
		"another kind": {[]string{"what-if", "pod", "x"}, 64, 0, []string{"expected one of node, zone"}},
	} {
		t.Run(name, func(t *testing.T) {
			var count atomic.Int32
			l.wrap = func(c *rest.Config) *rest.Config {
				c.Wrap(func(next http.RoundTripper) http.RoundTripper { return requests{next, &count} })
				return c
			}
			text, code := l.run(t, test.args...)
			if code != test.code || count.Load() != test.requests {
				t.Errorf("got exit code %d after %d requests, want %d after %d:\n%s", code, count.Load(), test.code,
					test.requests, text)
			}
			for _, want := range test.want {
				if !strings.Contains(strings.ReplaceAll(plain(text), "\n", " "), want) {
					t.Errorf("got:\n%s\nwant a text with %q", text, want)
				}
			}
		})
	}
	t.Run("with a controller and a webhook of another release name", func(t *testing.T) {
		l.wrap = nil
		l.deploy(t, "controller")
		l.deploy(t, "scheduler")
		text, code := l.run(t, "what-if", "node", "a")
		if code != 2 || !strings.Contains(text, "FailoverDisabled") || strings.Contains(text, "Neither the webhook") {
			t.Errorf("got exit code %d, want 2, the setting of the controller, and steering:\n%s", code, text)
		}
	})
}
