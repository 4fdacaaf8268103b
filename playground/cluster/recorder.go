package cluster

import (
	"context"

	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/programs"
	"github.com/azuredisk-csi/azuredisk/playground/source"
)

// RecorderImage makes the image of the scenarios' workload from the source tree,
// unless the cache holds it.
func RecorderImage(ctx context.Context, progress Progress) (images.Image, error) {
	root, err := source.Root()
	if err != nil {
		return images.Image{}, err
	}
	b := &builder{root: root, progress: progress, store: images.Store{Cache: programs.CacheDir(), Progress: progress}}
	program, err := b.own(ctx, "playground", "recorder")
	if err != nil {
		return images.Image{}, err
	}
	return b.store.Static(ctx, "recorder", "", program)
}
