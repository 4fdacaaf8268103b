// Package aks makes a playground's cluster like one of AKS: what AKS's add-ons, policies and
// webhooks do there, and what a CSI driver meets therefore. README.md has the facts, with their
// sources, and says what is not played.
//
// The supervisor runs it. Most of it is manifests; Serve is the webhooks, and Keep the controllers.
package aks

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
)

// Profile is the kind of cluster; "" is one that is not AKS's.
type Profile string

// The profiles.
const (
	// Standard is AKS Standard, where Deployment Safeguards warn.
	Standard Profile = "aks"
	// Enforce is AKS Standard, where Deployment Safeguards refuse. The namespaces azure-disk-csi and
	// default are excluded.
	Enforce Profile = "aks-enforce"
	// Automatic is AKS Automatic: Deployment Safeguards and the baseline of pod security refuse, and a
	// deny assignment is on the node resource group.
	Automatic Profile = "aks-automatic"
)

// Parse reads a profile, as a user writes it.
func Parse(text string) (Profile, error) {
	switch p := Profile(text); p {
	case "", Standard, Enforce, Automatic:
		return p, nil
	}
	return "", fmt.Errorf("no profile %q: there are %s, %s and %s", text, Standard, Enforce, Automatic)
}

//go:embed manifests/*.yaml
var manifests embed.FS

// allowedImages is an example of a list of registries; what AKS sets is not documented.
const allowedImages = `^([^/]+\\.azurecr\\.io|mcr\\.microsoft\\.com|registry\\.k8s\\.io|azuredisk\\.local)/.+$`

// Endpoint is where the webhooks of Serve answer.
type Endpoint struct {
	// URL has no path. CA verifies its certificate, as PEM.
	URL string
	CA  []byte
}

// Objects are what a cluster of the profile has, to be applied in order.
func (p Profile) Objects(e Endpoint) ([]*unstructured.Unstructured, error) {
	objects, err := p.read("cluster.yaml", e)
	if err != nil {
		return nil, err
	}
	policies, err := p.read("safeguards.yaml", e)
	if err != nil {
		return nil, err
	}
	for _, policy := range policies {
		objects = append(objects, policy)
		if policy.GetKind() == "ValidatingAdmissionPolicy" {
			objects = append(objects, p.binding(policy.GetName()))
		}
	}
	return objects, nil
}

// StorageClasses are the managed ones.
func (p Profile) StorageClasses() ([]*unstructured.Unstructured, error) {
	return p.read("storageclasses.yaml", Endpoint{})
}

func (p Profile) enforces() bool { return p != Standard }

// excluded are the namespaces that Deployment Safeguards leave alone.
func (p Profile) excluded() []string {
	if p == Enforce {
		return append(systemNamespaces(), "azure-disk-csi", "default")
	}
	return systemNamespaces()
}

func systemNamespaces() []string { return []string{"kube-system", "gatekeeper-system", "azure-arc"} }

// excludedCondition is the name of the match condition that exclusion is the expression of.
const excludedCondition = "no-excluded-namespace"

func exclusion(namespaces []string) string {
	return "!(request.namespace in ['" + strings.Join(namespaces, "', '") + "'])"
}

// Exclude excludes namespaces besides AKS's own from the Deployment Safeguards, as
// `az aks safeguards update --excluded-ns` does, and no others.
func Exclude(ctx context.Context, client kubernetes.Interface, namespaces []string) error {
	expression := exclusion(append(systemNamespaces(), namespaces...))
	admission := client.AdmissionregistrationV1()
	policies, err := admission.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range policies.Items {
		if exclude(p.Spec.MatchConditions, expression) {
			if _, err := admission.ValidatingAdmissionPolicies().Update(ctx, &p, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	webhooks, err := admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range webhooks.Items {
		changed := false
		for _, w := range c.Webhooks {
			changed = exclude(w.MatchConditions, expression) || changed
		}
		if changed {
			if _, err := admission.MutatingWebhookConfigurations().Update(ctx, &c, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// exclude sets the expression of the condition about excluded namespaces, and reports whether that
// changed it.
func exclude(conditions []admissionv1.MatchCondition, expression string) bool {
	i := slices.IndexFunc(conditions, func(c admissionv1.MatchCondition) bool { return c.Name == excludedCondition })
	if i < 0 || conditions[i].Expression == expression {
		return false
	}
	conditions[i].Expression = expression
	return true
}

func (p Profile) read(name string, e Endpoint) ([]*unstructured.Unstructured, error) {
	text, err := template.ParseFS(manifests, "manifests/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = text.Execute(&out, map[string]any{
		"URL":      e.URL,
		"CA":       base64.StdEncoding.EncodeToString(e.CA),
		"Excluded": exclusion(p.excluded()),
		"Images":   allowedImages,
		"Enforce":  p.enforces(),
		"Baseline": p == Automatic,
	})
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(&out, 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// binding puts a policy into effect.
func (p Profile) binding(policy string) *unstructured.Unstructured {
	action := "Warn"
	if p.enforces() {
		action = "Deny"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1",
		"kind":       "ValidatingAdmissionPolicyBinding",
		"metadata":   map[string]any{"name": policy},
		"spec":       map[string]any{"policyName": policy, "validationActions": []any{action}},
	}}
}
