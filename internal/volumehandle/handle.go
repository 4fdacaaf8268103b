// Package volumehandle reads and writes CSI volume handles. The handle of a
// volume is its disk's resource ID at Azure, as it is for the V1 driver:
//
//	/subscriptions/{s}/resourceGroups/{rg}/providers/Microsoft.Compute/disks/{name}
package volumehandle

import (
	"fmt"
	"strings"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/resourceid"
)

// Handle is a volume handle in its parts. Azure compares them without regard to case.
type Handle struct {
	SubscriptionID, ResourceGroup, DiskName string
}

// Parse reads a handle.
func Parse(s string) (Handle, error) {
	subscription, group, name, ok := split(s, "disks")
	if !ok {
		return Handle{}, malformed("volume", s, "disks")
	}
	return Handle{
		SubscriptionID: subscription,
		ResourceGroup:  group,
		DiskName:       name,
	}, nil
}

// cut splits the text of a resource ID at its slashes. n says how many parts there are; the last of
// those that are returned has what does not fit. It allocates nothing: the indexes of the caches
// split an ID at each look-up.
func cut(id string) (parts [10]string, n int) {
	for n = 0; n < len(parts)-1; n++ {
		before, after, more := strings.Cut(id, "/")
		if !more {
			break
		}
		parts[n], id = before, after
	}
	parts[n] = id
	return parts, n + 1
}

// split takes the resource ID of something of Microsoft.Compute apart.
func split(s, kind string) (subscription, group, name string, ok bool) {
	parts, n := cut(s)
	if n != 9 || parts[0] != "" || !strings.EqualFold(parts[1], "subscriptions") ||
		!strings.EqualFold(parts[3], "resourceGroups") ||
		!strings.EqualFold(parts[5], "providers") || !strings.EqualFold(parts[6], "Microsoft.Compute") ||
		!strings.EqualFold(parts[7], kind) {
		return "", "", "", false
	}
	subscription, group, name = parts[2], parts[4], parts[8]
	return subscription, group, name, resourceid.AreNames(subscription, group, name)
}

func malformed(what, s, kind string) error {
	return fmt.Errorf("%s handle %q is not of the form /subscriptions/{s}/resourceGroups/{rg}/providers/Microsoft.Compute/%s/{name}", what, s, kind)
}

// Of returns the handle of a disk with the given parameters.
func Of(disk apiv1.DiskParameters) Handle {
	return Handle{
		SubscriptionID: disk.SubscriptionID,
		ResourceGroup:  disk.ResourceGroup,
		DiskName:       disk.Name,
	}
}

// String returns the handle's text.
func (h Handle) String() string {
	return "/subscriptions/" + h.SubscriptionID + "/resourceGroups/" + h.ResourceGroup + "/providers/Microsoft.Compute/disks/" +
		h.DiskName
}

// Same reports whether two handles name one disk.
func (h Handle) Same(other Handle) bool { return strings.EqualFold(h.String(), other.String()) }

// VolumeName returns the name of the disk's AzVolume.
func (h Handle) VolumeName() string {
	return apiv1.VolumeName(h.SubscriptionID, h.ResourceGroup, h.DiskName)
}
