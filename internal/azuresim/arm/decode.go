package arm

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

// decode reads a JSON object into known, a pointer to a struct, and returns the members that the
// struct has no field for. Members that are null count as absent.
func decode(raw []byte, known any) (compute.Properties, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	rest := compute.Properties{}
	if err := json.Unmarshal(raw, &rest); err != nil {
		return nil, invalidContent(err)
	}
	if err := json.Unmarshal(raw, known); err != nil {
		return nil, invalidContent(err)
	}
	t := reflect.TypeOf(known).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		delete(rest, name)
	}
	for k, v := range rest {
		if string(v) == "null" {
			delete(rest, k)
		}
	}
	return rest, nil
}

func invalidContent(err error) error {
	return armerror.BadRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s'.",
		err)
}

// without returns the properties but for those that only Azure sets; clients send back what they
// read.
func without(p compute.Properties, names ...string) compute.Properties {
	for _, n := range names {
		delete(p, n)
	}
	return p
}

// object renders properties with further members laid over them; nil members are left out.
func object(p compute.Properties, members map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range p {
		out[k] = v
	}
	for k, v := range members {
		if !isNil(v) {
			out[k] = v
		}
	}
	return out
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}

// orNil returns nil for a zero value, so that object leaves the member out.
func orNil[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
