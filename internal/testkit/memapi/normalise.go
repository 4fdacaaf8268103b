package memapi

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func statusOf(o client.Object) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName("Status") }

func dropStatus(o client.Object) {
	if s := statusOf(o); s.IsValid() {
		s.SetZero()
	}
}

func copyStatus(to, from client.Object) {
	if s := statusOf(to); s.IsValid() {
		s.Set(statusOf(from.DeepCopyObject().(client.Object)))
	}
}

// specChanged says whether anything but metadata and status differs.
func specChanged(a, b client.Object) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		switch x.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			if !equality.Semantic.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
				return true
			}
		}
	}
	return false
}

var (
	timeType      = reflect.TypeFor[metav1.Time]()
	microTimeType = reflect.TypeFor[metav1.MicroTime]()
	quantityType  = reflect.TypeFor[resource.Quantity]()
)

// normalise makes an object what it would be after its way over the wire: times lose what JSON does not carry,
// and what is empty becomes nil.
func normalise(o client.Object) { wire(reflect.ValueOf(o).Elem()) }

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
