// The manifests program writes the manifests for kustomize, from the chart: one overlay for each
// profile of values, a base with the objects that all profiles have alike, and the CRDs with their
// namespace, which are kept when the rest is deleted. Usage: go run ./hack/manifests CHART DIR
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
)

const (
	release   = "azuredisk"
	namespace = "azure-disk-csi"
	// kubeVersion is the oldest that the chart installs on, so that newer ones take the manifests
	// too.
	kubeVersion = "1.34.0"
)

// profiles are the overlays. Each has the values of a file values-NAME.yaml in the chart.
var profiles = []string{"aks", "self-managed"}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: manifests CHART DIR")
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		log.Fatal("make the manifests for kustomize: ", err)
	}
}

// manifest is an object and its text.
type manifest struct {
	object *unstructured.Unstructured
	text   string
}

func write(chart, dir string) error {
	rendered := map[string][]manifest{}
	for _, profile := range profiles {
		manifests, err := render(chart, profile)
		if err != nil {
			return fmt.Errorf("profile %s: %w", profile, err)
		}
		rendered[profile] = manifests
	}
	kept, base, overlays := split(rendered)
	if err := writeFolder(filepath.Join(dir, "crds"), nil, append([]manifest{namespaceObject()}, kept...)); err != nil {
		return err
	}
	if err := writeFolder(filepath.Join(dir, "base"), nil, base); err != nil {
		return err
	}
	for _, profile := range profiles {
		if err := writeFolder(filepath.Join(dir, "overlays", profile), []string{"../../base"}, overlays[profile]); err != nil {
			return err
		}
	}
	return nil
}

// render returns what Helm installs with the values of the profile, without its hooks.
func render(chart, profile string) ([]manifest, error) {
	helm, err := programs.Find("helm")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(helm, "template", release, chart, "--namespace", namespace, "--no-hooks", "--kube-version", kubeVersion,
		"--set", "csiDriver.attachRequired=false", "--values", filepath.Join(chart, "values-"+profile+".yaml"))
	var problem bytes.Buffer
	cmd.Stderr = &problem
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, problem.String())
	}
	var manifests []manifest
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(output), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return manifests, nil
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) == 0 {
			continue
		}
		forKubectl(object)
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, manifest{object, string(text)})
	}
}

// clusterScoped are the kinds of the chart that have no namespace.
var clusterScoped = []string{
	"ClusterRole", "ClusterRoleBinding", "CSIDriver", "CustomResourceDefinition", "MutatingWebhookConfiguration", "Namespace",
	"PriorityClass",
	"StorageClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "VolumeAttributesClass",
	"VolumeSnapshotClass",
}

// forKubectl gives an object its namespace, and removes the labels that only Helm uses: an object
// with them looks like one of a release.
func forKubectl(object *unstructured.Unstructured) {
	if object.GetNamespace() == "" && !slices.Contains(clusterScoped, object.GetKind()) {
		object.SetNamespace(namespace)
	}
	for _, labels := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by"} {
			unstructured.RemoveNestedField(object.Object, append(slices.Clone(labels), label)...)
		}
	}
	annotations := object.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	object.SetAnnotations(annotations)
}

// split sorts the objects: the CRDs, which are kept, those that all profiles have alike, and for
// each profile the rest.
func split(rendered map[string][]manifest) (kept, base []manifest, overlays map[string][]manifest) {
	in := map[string]int{}
	for _, manifests := range rendered {
		for _, m := range manifests {
			in[m.text]++
		}
	}
	overlays = map[string][]manifest{}
	for i, profile := range profiles {
		for _, m := range rendered[profile] {
			everywhere, first := in[m.text] == len(profiles), i == 0
			switch {
			case everywhere && m.object.GetKind() == "CustomResourceDefinition" && first:
				kept = append(kept, m)
			case everywhere && m.object.GetKind() != "CustomResourceDefinition" && first:
				base = append(base, m)
			case !everywhere:
				overlays[profile] = append(overlays[profile], m)
			}
		}
	}
	return kept, base, overlays
}

// namespaceObject is what `helm install --create-namespace` creates. The node plug-in is
// privileged, because it mounts filesystems.
func namespaceObject() manifest {
	return manifest{text: "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels:\n    pod-security.kubernetes.io/enforce: privileged\n  name: " + namespace + "\n"}
}

func writeFolder(dir string, resources []string, manifests []manifest) error {
	const generated = "# Made from the chart by hack/manifests.\n"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var texts []string
	for _, m := range manifests {
		texts = append(texts, m.text)
	}
	if len(texts) > 0 {
		resources = append(resources, "azuredisk.yaml")
		if err := os.WriteFile(filepath.Join(dir, "azuredisk.yaml"), []byte(generated+strings.Join(texts, "---\n")),
			0o644); err != nil {
			return err
		}
	}
	kustomization := generated + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
	for _, resource := range resources {
		kustomization += "  - " + resource + "\n"
	}
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o644)
}
