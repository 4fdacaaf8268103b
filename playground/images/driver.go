package images

import (
	"context"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/azuredisk-csi/azuredisk/image"
	"github.com/azuredisk-csi/azuredisk/image/debian"
)

// Driver makes the driver's image for this machine as `make image` does, tagged with the hash of
// what goes into it.
func (s *Store) Driver(ctx context.Context, program string) (Image, error) {
	return s.make(ctx, "azuredisk", "", program, image.Inputs(), func(data []byte) (v1.Image, error) {
		lock, err := debian.ParseLock(image.LockText)
		if err != nil {
			return nil, err
		}
		tools, err := image.FetchTools(ctx, debian.NewFetcher(filepath.Join(s.Cache, "debian"), s.progress), lock, runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		// The tag says what the image is. A version would change with each commit, and with it the
		// image.
		variant, err := image.NewVariant(tools, image.Driver{Program: data}, image.Version{Name: "playground", Created: epoch})
		return variant.Image, err
	})
}
