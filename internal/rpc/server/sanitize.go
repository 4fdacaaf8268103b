package server

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const stripped = "***stripped***"

// sanitize returns message as JSON for the log, with the values of all fields that
// the CSI specification marks as secret replaced. It does not change message.
func sanitize(message any) string {
	m, ok := message.(proto.Message)
	if !ok || m == nil || !m.ProtoReflect().IsValid() {
		return ""
	}
	clone := proto.Clone(m)
	strip(clone.ProtoReflect())
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(clone)
	if err != nil {
		return fmt.Sprintf("(%s that cannot be printed)", m.ProtoReflect().Descriptor().Name())
	}
	return string(text)
}

func strip(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch secret := isSecret(field); {
		case secret && field.IsMap() && field.MapValue().Kind() == protoreflect.StringKind:
			entries := value.Map()
			entries.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
				entries.Set(key, protoreflect.ValueOfString(stripped))
				return true
			})
		case secret && field.Kind() == protoreflect.StringKind && !field.IsList():
			m.Set(field, protoreflect.ValueOfString(stripped))
		case secret:
			m.Clear(field)
		default:
			stripNested(field, value)
		}
		return true
	})
}

func stripNested(field protoreflect.FieldDescriptor, value protoreflect.Value) {
	switch {
	case field.IsMap():
		if field.MapValue().Message() == nil {
			return
		}
		value.Map().Range(func(_ protoreflect.MapKey, nested protoreflect.Value) bool {
			strip(nested.Message())
			return true
		})
	case field.Message() == nil:
	case field.IsList():
		for i := range value.List().Len() {
			strip(value.List().Get(i).Message())
		}
	default:
		strip(value.Message())
	}
}

func isSecret(field protoreflect.FieldDescriptor) bool {
	secret, ok := proto.GetExtension(field.Options(), csi.E_CsiSecret).(bool)
	return ok && secret
}
