package call

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/mountoptions"
)

// Access is the access pattern that the capabilities of a request require together.
type Access struct {
	Pattern apiv1.AccessPattern
	Block   bool
	// FSType of a mounted volume, as the capability names it.
	FSType string
}

// AccessOf reads capabilities. fault says why a disk with maxShares cannot have them; err is an
// InvalidArgument for capabilities that no disk can have.
func AccessOf(capabilities []*csi.VolumeCapability, maxShares int32) (a Access, fault string, err error) {
	if len(capabilities) == 0 {
		return a, "", InvalidArgument("volume capabilities: missing")
	}
	a.Pattern = apiv1.AccessSingleNode
	mounted := false
	for _, c := range capabilities {
		switch {
		case c.GetBlock() != nil:
			a.Block = true
		case c.GetMount() != nil:
			mounted = true
			a.FSType = c.GetMount().GetFsType()
		default:
			return a, "", InvalidArgument("volume capability: neither block nor mount")
		}
		switch mode := c.GetAccessMode().GetMode(); mode {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
			csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
			a.Pattern = apiv1.AccessMultiNode
			if c.GetBlock() == nil {
				fault = fmt.Sprintf("access mode %s: allowed for raw block volumes only", mode)
			} else if maxShares < 2 {
				fault = fmt.Sprintf("access mode %s: allowed with maxShares of 2 or more, and it is %d", mode, maxShares)
			}
		default:
			return a, "", InvalidArgument("volume capability: access mode %s is not known", mode)
		}
	}
	if a.Block && mounted {
		fault = "volume capabilities: block and mount exclude each other"
	}
	return a, fault, nil
}

// CheckMountOptions refuses capabilities with mountOptions that no node can mount with.
func CheckMountOptions(capabilities []*csi.VolumeCapability) error {
	for _, c := range capabilities {
		if _, err := mountoptions.Parse(c.GetMount().GetMountFlags()); err != nil {
			return InvalidArgument("%s", err)
		}
	}
	return nil
}
