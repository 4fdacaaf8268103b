package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/playground/source"
)

const examples = "the examples"

var exampleTests = []Test{
	{Topic: examples, Name: "the StatefulSet's pod runs, and its disk has a replica", run: runsTheStatefulSet},
	{Topic: examples, Name: "two pods on two nodes run with the shared device", run: runsTheSharedBlock},
	{Topic: examples, Name: "a restored and a migrated claim begin with the data of the first", run: runsTheCopies},
	{Topic: examples, Name: "the class fast makes the disk fast", run: runsTheClasses},
}

// example applies a file of examples/.
func (t *bench) example(ctx context.Context, file string) error {
	manifest, err := t.manifest(file)
	if err != nil {
		return fmt.Errorf("read the example %s: %w", file, err)
	}
	t.later("delete what "+file+" made", func(ctx context.Context) error {
		return t.kubectlWith(ctx, manifest, "delete", "--ignore-not-found", "--wait=false")
	})
	return t.kubectlWith(ctx, manifest, "apply", "--server-side")
}

// manifest returns a file of examples/, with the probe in the place of its containers: there is no
// registry with their image.
func (t *bench) manifest(file string) (string, error) {
	root, err := source.Root()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, "examples", file))
	if err != nil {
		return "", err
	}
	var manifest strings.Builder
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return "", err
		}
		if err := t.withProbe(object); err != nil {
			return "", err
		}
		object.SetLabels(labels())
		changed, err := yaml.Marshal(object.Object)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&manifest, "---\n%s", changed)
	}
	return manifest.String(), nil
}

// withProbe puts the probe into the pods of an object, and keeps them in zone1: they need two nodes of
// one zone, and zone2 has the disturbed one.
func (t *bench) withProbe(object *unstructured.Unstructured) error {
	template := []string{"spec", "template", "spec"}
	containers, has, err := unstructured.NestedSlice(object.Object, append(template, "containers")...)
	if err != nil || !has {
		return err
	}
	for _, c := range containers {
		container, is := c.(map[string]any)
		if !is {
			return fmt.Errorf("a container is %T", c)
		}
		delete(container, "command")
		container["image"], container["imagePullPolicy"], container["args"] = t.image, string(corev1.PullNever), []any{"hold"}
	}
	zone := map[string]string{corev1.LabelTopologyZone: zone1}
	return errors.Join(
		unstructured.SetNestedSlice(object.Object, containers, append(template, "containers")...),
		unstructured.SetNestedStringMap(object.Object, zone, append(template, "nodeSelector")...),
	)
}

// kubectlWith runs kubectl in the test's namespace on a manifest.
func (t *bench) kubectlWith(ctx context.Context, manifest string, args ...string) error {
	cmd := exec.CommandContext(ctx, t.kubectl, append(args, "--namespace", t.namespace, "--filename", "-")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+t.Dir.Kubeconfig())
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

func runsTheStatefulSet(ctx context.Context, t *bench) error {
	if err := t.example(ctx, "statefulset.yaml"); err != nil {
		return err
	}
	if _, err := t.awaitRunning(ctx, "ledger-0"); err != nil {
		return err
	}
	if _, err := t.probe(ctx, "ledger-0", "put", "/data/ledger", "entry"); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "data-ledger-0")
	if err != nil {
		return err
	}
	return await(ctx, "the disk has a replica", func(ctx context.Context) error {
		disk, err := t.disk(ctx, pv)
		if err != nil {
			return err
		}
		return check(len(disk.ManagedByExtended) == 2, "it is attached to %v", disk.ManagedByExtended)
	})
}

func runsTheSharedBlock(ctx context.Context, t *bench) error {
	if err := t.example(ctx, "shared-block.yaml"); err != nil {
		return err
	}
	return await(ctx, "both pods run", func(ctx context.Context) error {
		pods, err := t.kube.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=shared"})
		if err != nil {
			return err
		}
		nodes := map[string]bool{}
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning {
				nodes[p.Spec.NodeName] = true
			}
		}
		return check(len(nodes) == 2, "pods run on %d nodes", len(nodes))
	})
}

func runsTheCopies(ctx context.Context, t *bench) error {
	const text = "of the first claim"
	if err := t.claim(ctx, "data", "azuredisk-premium", "64Gi"); err != nil {
		return err
	}
	if _, err := t.run(ctx, "first", []string{"data"}); err != nil {
		return err
	}
	if _, err := t.probe(ctx, "first", "put", filePath("data", "file"), text); err != nil {
		return err
	}
	if err := t.example(ctx, "snapshot-and-restore.yaml"); err != nil {
		return err
	}
	if _, err := t.run(ctx, "restored", []string{"data-restored"}); err != nil {
		return err
	}
	if err := t.expect(ctx, text, "restored", "cat", filePath("data-restored", "file")); err != nil {
		return err
	}
	if err := t.deletePod(ctx, "first"); err != nil {
		return err
	}
	if err := t.example(ctx, "migrate-claim.yaml"); err != nil {
		return err
	}
	if _, err := t.run(ctx, "migrated", []string{"data-replicated"}); err != nil {
		return err
	}
	return t.expect(ctx, text, "migrated", "cat", filePath("data-replicated", "file"))
}

func runsTheClasses(ctx context.Context, t *bench) error {
	if err := t.example(ctx, "volume-attributes-class.yaml"); err != nil {
		return err
	}
	if _, err := t.run(ctx, "user", []string{"tuned"}); err != nil {
		return err
	}
	if err := t.awaitPerformance(ctx, "tuned", "normal", 3000, 125); err != nil {
		return err
	}
	if err := t.patchClaim(ctx, "tuned", `{"spec":{"volumeAttributesClassName":"fast"}}`); err != nil {
		return err
	}
	return t.awaitPerformance(ctx, "tuned", "fast", 8000, 400)
}
