// Package volumecondition reads the VolumeCondition that internal/node/csi/condition adds to a response,
// as a kubelet with an older CSI reads it.
package volumecondition

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The numbers of the VolumeCondition in its message, and of its own fields.
const (
	field         = 2
	abnormalField = 1
	messageField  = 2
)

// Of returns the VolumeCondition of a message; found is false where it has none.
func Of(message proto.Message) (abnormal bool, text string, found bool) {
	inner, found := bytesOf(message.ProtoReflect().GetUnknown(), field)
	if !found {
		return false, "", false
	}
	for len(inner) > 0 {
		number, kind, n := protowire.ConsumeTag(inner)
		if n < 0 {
			return false, "", false
		}
		inner = inner[n:]
		size := protowire.ConsumeFieldValue(number, kind, inner)
		if size < 0 {
			return false, "", false
		}
		switch {
		case number == abnormalField && kind == protowire.VarintType:
			value, _ := protowire.ConsumeVarint(inner)
			abnormal = value != 0
		case number == messageField && kind == protowire.BytesType:
			text, _ = protowire.ConsumeString(inner)
		}
		inner = inner[size:]
	}
	return abnormal, text, true
}

func bytesOf(raw []byte, wanted protowire.Number) ([]byte, bool) {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, false
		}
		raw = raw[n:]
		if number == wanted && kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(raw)
			return value, size >= 0
		}
		size := protowire.ConsumeFieldValue(number, kind, raw)
		if size < 0 {
			return nil, false
		}
		raw = raw[size:]
	}
	return nil, false
}
