package azure

import (
	"context"
	"errors"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/client"
)

// whereSourceIs explains a copy that Azure has refused because it has not found the source. Azure says
// the same of a source that does not exist and of one in another region: the first may be a reason
// to give up, and the second is a mistake of the caller.
func (c *Cloud) whereSourceIs(ctx context.Context, source, location string, refused error) error {
	if source == "" || !errors.Is(refused, provisioner.NotFound) {
		return refused
	}
	r, err := c.api.Parse(source, client.TypeDisk, client.TypeSnapshot)
	if err != nil {
		return refused
	}
	var in string
	if r.Is(client.TypeDisk) {
		seen, readErr := c.readDisk(ctx, source)
		in, err = seen.Location, readErr
	} else {
		seen, readErr := c.readSnapshot(ctx, source)
		in, err = seen.Location, readErr
	}
	if err != nil || strings.EqualFold(in, location) {
		return refused
	}
	return provisioner.Errorf(provisioner.InvalidArgument, "the source %s is in region %s, and its copy is to be in %s: %s", source,
		in, location, refused)
}
