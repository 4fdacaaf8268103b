package memapi

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// objects are the objects of a kind, by name and in the order of the names. Lists are most of what
// a simulation asks for, so that the order is kept.
type objects struct {
	byName map[types.NamespacedName]client.Object
	sorted []client.Object
}

func newObjects() objects { return objects{byName: map[types.NamespacedName]client.Object{}} }

// place returns where in the order an object of a name is, or would be.
func (o *objects) place(key types.NamespacedName) (int, bool) {
	return slices.BinarySearchFunc(o.sorted, key, func(a client.Object, key types.NamespacedName) int {
		if d := strings.Compare(a.GetNamespace(), key.Namespace); d != 0 {
			return d
		}
		return strings.Compare(a.GetName(), key.Name)
	})
}

func (o *objects) set(key types.NamespacedName, to client.Object) {
	o.byName[key] = to
	if i, found := o.place(key); found {
		o.sorted[i] = to
	} else {
		o.sorted = slices.Insert(o.sorted, i, to)
	}
}

func (o *objects) remove(key types.NamespacedName) {
	delete(o.byName, key)
	if i, found := o.place(key); found {
		o.sorted = slices.Delete(o.sorted, i, i+1)
	}
}

// copyInto makes into a copy of stored. The kinds that are copied often need no additional memory
// for it.
func copyInto(into, stored client.Object) {
	switch from := stored.(type) {
	case *apiv1.AzVolume:
		from.DeepCopyInto(into.(*apiv1.AzVolume))
	case *apiv1.AzVolumeAttachment:
		from.DeepCopyInto(into.(*apiv1.AzVolumeAttachment))
	case *apiv1.AzDriverNode:
		from.DeepCopyInto(into.(*apiv1.AzDriverNode))
	case *corev1.Node:
		from.DeepCopyInto(into.(*corev1.Node))
	case *corev1.Pod:
		from.DeepCopyInto(into.(*corev1.Pod))
	case *corev1.PersistentVolume:
		from.DeepCopyInto(into.(*corev1.PersistentVolume))
	case *corev1.PersistentVolumeClaim:
		from.DeepCopyInto(into.(*corev1.PersistentVolumeClaim))
	default:
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(stored.DeepCopyObject()).Elem())
	}
}

// itemsOf is where a type of list has its items: the index of the field.
var itemsOf sync.Map

// items is the field of a list that holds its items.
func items(list client.ObjectList) reflect.Value {
	v := reflect.ValueOf(list).Elem()
	index, known := itemsOf.Load(v.Type())
	if !known {
		field, _ := v.Type().FieldByName("Items")
		index = field.Index
		itemsOf.Store(v.Type(), index)
	}
	return v.FieldByIndex(index.([]int))
}

// itemType is the type of the items of a list.
func itemType(list client.ObjectList) reflect.Type { return items(list).Type().Elem() }

// fillList makes a list one of the objects that options select. values returns the values of a
// field, and whether it can be selected by.
func fillList(list client.ObjectList, from *objects, options []client.ListOption, values fieldValues) {
	var all client.ListOptions
	all.ApplyOptions(options)
	matches := selector(all, values)
	selected := make([]client.Object, 0, len(from.sorted))
	for _, o := range from.sorted {
		if matches(o) {
			selected = append(selected, o)
		}
	}
	if all.Limit > 0 {
		selected = selected[:min(len(selected), int(all.Limit))]
	}
	into := items(list)
	found := reflect.MakeSlice(into.Type(), len(selected), len(selected))
	shared := all.UnsafeDisableDeepCopy != nil && *all.UnsafeDisableDeepCopy
	for i, o := range selected {
		if shared {
			found.Index(i).Set(reflect.ValueOf(o).Elem())
		} else {
			copyInto(found.Index(i).Addr().Interface().(client.Object), o)
		}
	}
	into.Set(found)
}
