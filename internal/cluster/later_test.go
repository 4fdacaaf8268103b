package cluster_test

import (
	"encoding/json"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// later is a field that a later version adds to each part of the custom resources.
const later = "aLaterField"

// extend adds the field to a schema and to those in it.
func extend(s *apiextensionsv1.JSONSchemaProps) {
	for name, property := range s.Properties {
		extend(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		extend(s.Items.Schema)
	}
	if s.Properties != nil {
		s.Properties[later] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	}
}

// plant adds the field to an object and to those in it, and returns how many it has then.
func plant(value any) (planted int) {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			planted += plant(v)
		}
		value[later] = "is here"
		planted++
	case []any:
		for _, v := range value {
			planted += plant(v)
		}
	}
	return planted
}

func count(value any) (found int) {
	switch value := value.(type) {
	case map[string]any:
		if value[later] != nil {
			found++
		}
		for _, v := range value {
			found += count(v)
		}
	case []any:
		for _, v := range value {
			found += count(v)
		}
	}
	return found
}

// laterServer is a server whose resources have the field. The other tests of the package know nothing of
// it, as today's version does not.
func laterServer(t *testing.T) client.Client {
	t.Helper()
	scheme := apiserver.Scheme(t)
	expect.Must(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	expect.Must(t, err)
	var crds apiextensionsv1.CustomResourceDefinitionList
	expect.Must(t, c.List(t.Context(), &crds))
	for _, crd := range crds.Items {
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			s := schema.Properties[part]
			extend(&s)
			schema.Properties[part] = s
		}
		expect.Must(t, c.Update(t.Context(), &crd))
	}
	return c
}

func TestWritesLeaveFieldsOfALaterVersion(t *testing.T) {
	t.Parallel()
	c, namespace := laterServer(t), apiserver.Namespace(t)
	volume, attachment := objects.NewVolume(), objects.NewAttachment("n", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
	node := &apiv1.AzDriverNode{Spec: apiv1.AzDriverNodeSpec{VMID: "vm"}}
	node.Name = "n"
	for _, name := range []string{"one", "two"} {
		staged := apiv1.StagedVolume{VolumeName: name, Phase: apiv1.PhaseStaged}
		node.Status.StagedVolumes = append(node.Status.StagedVolumes, staged)
	}
	for _, test := range []struct {
		made, status client.Object
		change       func(client.Object)
		tell         func(client.Object)
	}{
		{volume, volume.DeepCopy(), func(o client.Object) { o.(*apiv1.AzVolume).Spec.CapacityBytes *= 2 },
			func(o client.Object) { o.(*apiv1.AzVolume).Status.SizeBytes++ }},
		{attachment, attachment.DeepCopy(), func(o client.Object) { o.(*apiv1.AzVolumeAttachment).Spec.ReadOnly = true },
			func(o client.Object) { o.(*apiv1.AzVolumeAttachment).Status.State = apiv1.AttachmentDetaching }},
		{node, node.DeepCopy(), func(o client.Object) { o.(*apiv1.AzDriverNode).Spec.VMSize = "s" },
			func(o client.Object) { o.(*apiv1.AzDriverNode).Status.StagedVolumes[1].Phase = apiv1.PhaseUnstaging }},
	} {
		t.Run(fmt.Sprintf("%T", test.made), func(t *testing.T) {
			test.made.SetNamespace(namespace)
			test.made.SetResourceVersion("")
			test.made.SetUID("")
			expect.Must(t, c.Create(t.Context(), test.made))
			raw := &unstructured.Unstructured{}
			gvk, err := c.GroupVersionKindFor(test.made)
			expect.Must(t, err)
			planted := plantAll(t, c, gvk.Kind, test.made, test.status)
			expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(test.made), test.made))
			for _, write := range []func(client.Object) error{
				func(before client.Object) error {
					test.change(test.made)
					return kube.Patch(t.Context(), c, test.made, before)
				},
				func(before client.Object) error {
					test.tell(test.made)
					return kube.PatchStatus(t.Context(), c, test.made, before)
				},
			} {
				expect.Must(t, write(test.made.DeepCopyObject().(client.Object)))
			}
			raw.SetGroupVersionKind(gvk)
			expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(test.made), raw))
			if left := count(raw.Object); left != planted || planted < 2 {
				t.Errorf("%d of %d fields of a later version are left", left, planted)
			}
		})
	}
}

// plantAll writes the status and the later fields, and returns how many of these there are. The server
// may need a moment to know them.
func plantAll(t *testing.T, c client.Client, kind string, made, status client.Object) (planted int) {
	t.Helper()
	expect.Eventually(t, kind+" has the fields of a later version", func() bool {
		var parts, statusParts map[string]any
		decode(t, made, &parts)
		decode(t, status, &statusParts)
		spec := map[string]any{"spec": parts["spec"]}
		told := map[string]any{"status": statusParts["status"]}
		planted = plant(spec["spec"]) + plant(told["status"])
		expect.Must(t, c.Patch(t.Context(), made, merge(t, spec)))
		expect.Must(t, c.Status().Patch(t.Context(), made, merge(t, told)))
		raw := &unstructured.Unstructured{}
		raw.SetGroupVersionKind(apiv1.GroupVersion.WithKind(kind))
		expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(made), raw))
		return count(raw.Object) == planted
	})
	return planted
}

func decode(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	expect.Must(t, err)
	expect.Must(t, json.Unmarshal(text, to))
}

func merge(t *testing.T, value any) client.Patch {
	t.Helper()
	text, err := json.Marshal(value)
	expect.Must(t, err)
	return client.RawPatch(types.MergePatchType, text)
}
