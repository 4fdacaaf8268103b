package controller

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// access is what capabilities ask for together.
type access struct {
	pattern apiv1.AccessPattern
	block   bool
	// fsType of a mounted volume, as the capability names it.
	fsType string
}

// accessOf reads capabilities. fault says why they cannot be had; err is for those that make no sense.
func accessOf(capabilities []*csi.VolumeCapability, maxShares int32) (a access, fault string, err error) {
	if len(capabilities) == 0 {
		return a, "", invalidArgument("volume capabilities: missing")
	}
	a.pattern = apiv1.AccessSingleNode
	mounted := false
	for _, c := range capabilities {
		switch {
		case c.GetBlock() != nil:
			a.block = true
		case c.GetMount() != nil:
			mounted = true
			a.fsType = c.GetMount().GetFsType()
		default:
			return a, "", invalidArgument("volume capability: neither block nor mount")
		}
		switch mode := c.GetAccessMode().GetMode(); mode {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
			csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
			a.pattern = apiv1.AccessMultiNode
			if c.GetBlock() == nil {
				fault = fmt.Sprintf("access mode %s: allowed for raw block volumes only", mode)
			} else if maxShares < 2 {
				fault = fmt.Sprintf("access mode %s: allowed with maxShares of 2 or more, and it is %d", mode, maxShares)
			}
		default:
			return a, "", invalidArgument("volume capability: access mode %s is not known", mode)
		}
	}
	if a.block && mounted {
		fault = "volume capabilities: block and mount exclude each other"
	}
	return a, fault, nil
}
