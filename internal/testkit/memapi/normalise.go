package memapi

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func structOf(o client.Object) reflect.Value { return reflect.ValueOf(o).Elem() }

// statusOf returns the status of an object, which is not valid for a kind that has none.
func statusOf(o client.Object) reflect.Value { return structOf(o).FieldByName("Status") }

// withoutStatus returns a copy of an object whose status is empty.
func withoutStatus(o client.Object) client.Object {
	rest := shallow(o)
	if s := statusOf(rest); s.IsValid() {
		s.SetZero()
	}
	return rest.DeepCopyObject().(client.Object)
}

// onlyStatus returns an object that is empty but for a copy of another's status.
func onlyStatus(o client.Object) client.Object {
	only := reflect.New(typeOf(o)).Interface().(client.Object)
	if s := statusOf(only); s.IsValid() {
		s.Set(statusOf(o))
	}
	return only.DeepCopyObject().(client.Object)
}

// shallow returns a shallow copy of an object.
func shallow(o client.Object) client.Object {
	same := reflect.New(typeOf(o)).Interface().(client.Object)
	structOf(same).Set(structOf(o))
	return same
}

// specChanged reports whether anything but metadata and status differs.
func specChanged(a, b client.Object) bool {
	x, y := structOf(a), structOf(b)
	for i := range x.NumField() {
		switch x.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			if !same(x.Field(i), y.Field(i)) {
				return true
			}
		}
	}
	return false
}

// same reports whether two values, in the form in which a server returns them, are equal.
func same(a, b reflect.Value) bool {
	x, y := a.Addr().Interface(), b.Addr().Interface()
	return reflect.DeepEqual(x, y) || equality.Semantic.DeepEqual(x, y) // the first is so nearly always, and much cheaper
}

var (
	timeType      = reflect.TypeFor[metav1.Time]()
	microTimeType = reflect.TypeFor[metav1.MicroTime]()
	quantityType  = reflect.TypeFor[resource.Quantity]()
)

// normalise changes an object as its way over the wire would: times lose precision, and empty
// values become nil.
func normalise(o client.Object) { wire(structOf(o)) }

func wire(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		wireStruct(v)
	case reflect.Pointer:
		if !v.IsNil() {
			wire(v.Elem())
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
			return
		}
		if simple(v.Type().Elem().Kind()) {
			return
		}
		for i := range v.Len() {
			wire(v.Index(i))
		}
	case reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
		}
	default:
	}
}

func wireStruct(v reflect.Value) {
	switch v.Type() {
	case timeType:
		if t := v.Interface().(metav1.Time); !t.IsZero() {
			v.Set(reflect.ValueOf(metav1.Time{Time: t.Truncate(time.Second).Round(0)}))
		}
		return
	case microTimeType:
		if t := v.Interface().(metav1.MicroTime); !t.IsZero() {
			v.Set(reflect.ValueOf(metav1.MicroTime{Time: t.Truncate(time.Microsecond).Round(0)}))
		}
		return
	case quantityType:
		return
	}
	for i := range v.NumField() {
		if f := v.Field(i); f.CanSet() && !simple(f.Kind()) {
			wire(f)
		}
	}
}

func simple(k reflect.Kind) bool { return k <= reflect.Complex128 || k == reflect.String }
