// Package compatibility compares what other programs build on with what the last release had: the custom
// resources and the exported Go packages. SUPPORT.md says which changes each of them may see.
package compatibility

import (
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// schemaBreaks returns what a client or an object of the old schema would stumble over in the new one, by
// the rules of Kubernetes for a stable version ("API changes"): a field that is gone or has another type, a
// field that has become required, a value that is not allowed any more.
func schemaBreaks(path string, old, now apiextensionsv1.JSONSchemaProps) (breaks []string) {
	fault := func(format string, args ...any) {
		breaks = append(breaks, path+": "+fmt.Sprintf(format, args...))
	}
	if old.Type != now.Type || old.Format != now.Format || old.XIntOrString != now.XIntOrString {
		fault("is %s %s, was %s %s", now.Type, now.Format, old.Type, old.Format)
		return breaks
	}
	for _, name := range now.Required {
		if _, existed := old.Properties[name]; existed && !slices.Contains(old.Required, name) {
			fault("%s has become required", name)
		} else if !existed {
			fault("%s is new and required", name)
		}
	}
	if len(now.Enum) > 0 {
		for _, value := range old.Enum {
			if !slices.ContainsFunc(now.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
				fault("the value %s is gone", value.Raw)
			}
		}
		if len(old.Enum) == 0 {
			fault("has got a list of values")
		}
	}
	if old.Pattern != now.Pattern && now.Pattern != "" {
		fault("has the pattern %s, had %q", now.Pattern, old.Pattern)
	}
	for _, most := range []struct {
		name     string
		old, now *int64
	}{
		{"maxLength", old.MaxLength, now.MaxLength},
		{"maxItems", old.MaxItems, now.MaxItems},
		{"maxProperties", old.MaxProperties, now.MaxProperties},
		{"maximum", whole(old.Maximum), whole(now.Maximum)},
	} {
		if most.now != nil && (most.old == nil || *most.now < *most.old) {
			fault("%s is %d, was %v", most.name, *most.now, value(most.old))
		}
	}
	for _, least := range []struct {
		name     string
		old, now *int64
	}{
		{"minLength", old.MinLength, now.MinLength},
		{"minItems", old.MinItems, now.MinItems},
		{"minimum", whole(old.Minimum), whole(now.Minimum)},
	} {
		if least.now != nil && (least.old == nil || *least.now > *least.old) {
			fault("%s is %d, was %v", least.name, *least.now, value(least.old))
		}
	}
	if ptr.Deref(old.XListType, "") != ptr.Deref(now.XListType, "") || !slices.Equal(old.XListMapKeys, now.XListMapKeys) {
		fault("is merged as %s by %q, was %s by %q", ptr.Deref(now.XListType, ""), now.XListMapKeys, ptr.Deref(old.XListType, ""),
			old.XListMapKeys)
	}
	for _, name := range slices.Sorted(maps.Keys(old.Properties)) {
		field, is := now.Properties[name]
		if !is {
			fault("%s is gone", name)
			continue
		}
		breaks = append(breaks, schemaBreaks(path+"."+name, old.Properties[name], field)...)
	}
	if old.Items != nil && now.Items != nil {
		breaks = append(breaks, schemaBreaks(path+"[]", *old.Items.Schema, *now.Items.Schema)...)
	}
	if old.AdditionalProperties != nil && now.AdditionalProperties != nil {
		breaks = append(breaks, schemaBreaks(path+".*", *old.AdditionalProperties.Schema, *now.AdditionalProperties.Schema)...)
	}
	return breaks
}

func whole(f *float64) *int64 {
	if f == nil {
		return nil
	}
	return ptr.To(int64(*f))
}

func value(n *int64) any {
	if n == nil {
		return "unbounded"
	}
	return *n
}

// bare removes from a schema what is for people only.
func bare(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	s.Description = ""
	for name, field := range s.Properties {
		s.Properties[name] = bare(field)
	}
	if s.Items != nil {
		s.Items.Schema = ptr.To(bare(*s.Items.Schema))
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		s.AdditionalProperties.Schema = ptr.To(bare(*s.AdditionalProperties.Schema))
	}
	return s
}
