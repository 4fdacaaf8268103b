// Package condition adds the VolumeCondition to CSI responses. CSI 1.13 replaced that message by
// the calls for volume health and left its field unused; Kubernetes up to 1.36 uses an older CSI
// and still reads it.
package condition

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// NodeCapability is the capability of the node that was called VOLUME_CONDITION.
const NodeCapability = csi.NodeServiceCapability_RPC_Type(4)

// field has this number in NodeGetVolumeStatsResponse and in the statuses of ListVolumes and
// ControllerGetVolume.
const field = 2

// The fields of a VolumeCondition.
const (
	abnormalField = 1
	messageField  = 2
)

// Attach adds a VolumeCondition to to, which is one of the messages that had one.
func Attach(to proto.Message, abnormal bool, message string) {
	var inner []byte
	if abnormal {
		inner = protowire.AppendTag(inner, abnormalField, protowire.VarintType)
		inner = protowire.AppendVarint(inner, 1)
	}
	inner = protowire.AppendTag(inner, messageField, protowire.BytesType)
	inner = protowire.AppendString(inner, message)
	reflection := to.ProtoReflect()
	raw := protowire.AppendTag(append([]byte(nil), reflection.GetUnknown()...), field, protowire.BytesType)
	reflection.SetUnknown(protowire.AppendBytes(raw, inner))
}
