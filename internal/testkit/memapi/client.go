package memapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

// Client is a client.WithWatch of one process.
type Client struct {
	store *Store
	gate  Gate
	cache *Cache
}

var _ client.WithWatch = (*Client)(nil)

// NewClient makes a client whose accesses go through gate. Get and List read from cache, without
// the gate, unless it is nil.
func NewClient(store *Store, gate Gate, cache *Cache) *Client {
	return &Client{
		store: store,
		gate:  gate,
		cache: cache,
	}
}

func (c *Client) call(ctx context.Context, verb string, o client.Object, do func() error) error {
	return c.gate(ctx, Call{
		Verb: verb,
		Kind: typeOf(o).Name(),
		Name: o.GetName(),
	}, do)
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, into client.Object,
	options ...client.GetOption) error {
	if c.cache != nil {
		return c.cache.Get(ctx, key, into, options...)
	}
	return c.gate(ctx, Call{
		Verb: "get",
		Kind: typeOf(into).Name(),
		Name: key.Name,
	}, func() error { return c.store.Get(key, into) })
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if c.cache != nil {
		return c.cache.List(ctx, list, options...)
	}
	of := itemType(list)
	return c.gate(ctx, Call{Verb: "list", Kind: of.Name()}, func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		fillList(list, &c.store.kindOf(of).objects, options, selectable)
		return nil
	})
}

// fieldValues returns the values of a field of an object, and whether the field can be selected by.
type fieldValues func(o client.Object, field string) ([]string, bool)

// selector returns the selection by the options of a list.
func selector(all client.ListOptions, values fieldValues) func(client.Object) bool {
	var requirements fields.Requirements
	if all.FieldSelector != nil {
		requirements = all.FieldSelector.Requirements()
	}
	return func(o client.Object) bool {
		if all.Namespace != "" && o.GetNamespace() != all.Namespace {
			return false
		}
		if all.LabelSelector != nil && !all.LabelSelector.Matches(labelsOf(o)) {
			return false
		}
		for _, r := range requirements {
			have, ok := values(o, r.Field)
			if !ok {
				panic(fmt.Sprintf("%T is not indexed by %s", o, r.Field))
			}
			found := false
			for _, v := range have {
				found = found || v == r.Value
			}
			if found != (r.Operator != "!=") {
				return false
			}
		}
		return true
	}
}

type labels map[string]string

func labelsOf(o client.Object) labels { return o.GetLabels() }

// Has implements labels.Labels.
func (l labels) Has(key string) bool { _, ok := l[key]; return ok }

// Get implements labels.Labels.
func (l labels) Get(key string) string { return l[key] }

// Lookup implements labels.Labels.
func (l labels) Lookup(key string) (string, bool) { v, ok := l[key]; return v, ok }

// selectable are the fields that the server itself selects by.
func selectable(o client.Object, field string) ([]string, bool) {
	switch field {
	case "metadata.name":
		return []string{o.GetName()}, true
	case "spec.volumeName", "spec.nodeName", "spec.role":
		spec := reflect.ValueOf(o).Elem().FieldByName("Spec")
		name := map[string]string{"spec.volumeName": "VolumeName", "spec.nodeName": "NodeName", "spec.role": "Role"}[field]
		if f := spec.FieldByName(name); f.IsValid() && f.Kind() == reflect.String {
			return []string{f.String()}, true
		}
	}
	return nil, false
}

// Watch implements client.WithWatch.
func (c *Client) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	of := itemType(list)
	var all client.ListOptions
	all.ApplyOptions(options)
	matches := selector(all, selectable)
	var w watch.Interface
	err := c.gate(ctx, Call{Verb: "watch", Kind: of.Name()}, func() error { w = c.store.watch(of, matches); return nil })
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return c.call(ctx, "create", o, func() error { return c.store.Create(o) })
}

// Delete implements client.Writer.
func (c *Client) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	var all client.DeleteOptions
	all.ApplyOptions(options)
	return c.call(ctx, "delete", o, func() error { return c.store.Delete(o, all) })
}

// Update implements client.Writer.
func (c *Client) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return c.call(ctx, "update", o, func() error { return c.store.Update(o, false) })
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.call(ctx, "patch", o, func() error { return c.store.Patch(o, patch, false) })
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter { return status{c} }

type status struct{ c *Client }

// Create implements client.SubResourceWriter.
func (s status) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return fmt.Errorf("memapi: a status is not created")
}

// Get implements client.SubResourceReader.
func (s status) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	panic("memapi: there is no read of a status")
}

// Update implements client.SubResourceWriter.
func (s status) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.c.call(ctx, "update/status", o, func() error { return s.c.store.Update(o, true) })
}

// Patch implements client.SubResourceWriter.
func (s status) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.c.call(ctx, "patch/status", o, func() error { return s.c.store.Patch(o, patch, true) })
}

// Apply implements client.SubResourceWriter.
func (s status) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return fmt.Errorf("memapi: server-side apply is not there")
}

// Apply implements client.Writer.
func (c *Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return fmt.Errorf("memapi: server-side apply is not there")
}

// DeleteAllOf implements client.Writer.
func (c *Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return fmt.Errorf("memapi: DeleteAllOf is not there")
}

// SubResource implements client.SubResourceClientConstructor; the driver uses none but status.
func (c *Client) SubResource(name string) client.SubResourceClient {
	if name != "status" {
		panic("memapi: subresource " + name + " is not there")
	}
	return status{c}
}

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return c.store.scheme }

// RESTMapper implements client.Client.
func (c *Client) RESTMapper() meta.RESTMapper { return nil }

// GroupVersionKindFor implements client.Client.
func (c *Client) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, c.store.scheme)
}

// IsObjectNamespaced implements client.Client.
func (c *Client) IsObjectNamespaced(o runtime.Object) (bool, error) {
	switch gvk, err := c.GroupVersionKindFor(o); {
	case err != nil:
		return false, err
	default:
		return gvk.Kind != "Node" && gvk.Kind != "PersistentVolume", nil
	}
}

// Patch changes an object, or its status, as patch says. As with a server, one without an
// optimistic lock also changes an object that was deleted and re-created.
func (s *Store) Patch(o client.Object, patch client.Patch, status bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, stored, err := s.current(o)
	if err != nil {
		return err
	}
	if patch, ok := patch.(*kube.FieldPatch); ok && ours(o) {
		if patch.Before.GetResourceVersion() == stored.GetResourceVersion() {
			// What it was worked out from is what is stored, so the result is what the caller has. To encode
			// both objects only to learn it would take most of a simulation's time.
			return s.replace(k, stored, o, status)
		}
		if !s.IgnoreVersions {
			return conflict(o)
		}
	}
	wanted, err := merged(stored, o, patch)
	if err != nil {
		return err
	}
	if v := wanted.GetResourceVersion(); v != stored.GetResourceVersion() && !s.IgnoreVersions {
		return conflict(o)
	}
	if err := s.replace(k, stored, wanted, status); err != nil {
		return err
	}
	copyInto(o, wanted)
	return nil
}

// ours reports whether caches hold the whole of such objects, so that a copy with the same version
// is the same.
func ours(o client.Object) bool {
	switch o.(type) {
	case *apiv1.AzVolume, *apiv1.AzVolumeAttachment, *apiv1.AzDriverNode:
		return true
	}
	return false
}

func merged(stored, o client.Object, patch client.Patch) (client.Object, error) {
	data, err := patch.Data(o)
	if err != nil {
		return nil, fmt.Errorf("memapi: make patch: %w", err)
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("memapi: encode: %w", err)
	}
	wanted := reflect.New(typeOf(o)).Interface().(client.Object)
	var after []byte
	switch patch.Type() {
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, data, wanted)
	case types.JSONPatchType:
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(data); err == nil {
			after, err = operations.Apply(before)
		}
		if err != nil { // what it changes is not as it expects
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{},
				o.GetName(), err.Error(), 0, false)
		}
	default:
		after, err = jsonpatch.MergePatch(before, data)
	}
	if err != nil {
		return nil, fmt.Errorf("memapi: apply patch: %w", err)
	}
	if err := json.Unmarshal(after, wanted); err != nil {
		return nil, fmt.Errorf("memapi: decode: %w", err)
	}
	wanted.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	wanted.SetManagedFields([]metav1.ManagedFieldsEntry(nil))
	return wanted, nil
}
