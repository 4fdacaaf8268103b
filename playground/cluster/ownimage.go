package cluster

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/programs"
)

// OwnImage makes the image of a program of the playground's own, a folder of its cmd,
// from the source tree, unless the cache holds it.
func OwnImage(ctx context.Context, name string, progress Progress) (images.Image, error) {
	b, err := newBuilder(programs.FromEnvironment(), progress)
	if err != nil {
		return images.Image{}, err
	}
	program, err := b.own(ctx, "playground", name)
	if err != nil {
		return images.Image{}, err
	}
	return b.store.Static(ctx, name, "", program)
}
