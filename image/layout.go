package image

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/azuredisk-csi/azuredisk/image/sbom"
)

// refName is the annotation of OCI layouts for the tag of an image.
const refName = "org.opencontainers.image.ref.name"

// Variant is the image for one architecture, with its bill of materials.
type Variant struct {
	Architecture string
	Image        v1.Image
	SBOM         []byte
}

// WriteLayout writes an OCI layout: an index of the variants, tagged with the version, and the bill
// of materials of each variant as an artifact that refers to it. It replaces the folder.
func WriteLayout(dir string, variants []Variant, version Version) error {
	return replace(dir, func(dir string) error { return writeLayout(dir, variants, version) })
}

// replace writes a layout to a folder beside dir, and puts it in the place of dir when it is
// complete.
func replace(dir string, write func(dir string) error) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	if err := os.Chmod(partial, 0o755); err != nil {
		return err
	}
	if err := write(partial); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(partial, dir)
}

func writeLayout(dir string, variants []Variant, version Version) error {
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var bills []v1.Image
	for _, variant := range variants {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: variant.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{
				OS:           "linux",
				Architecture: variant.Architecture,
			}},
		})
		bill, err := bill(variant)
		if err != nil {
			return err
		}
		bills = append(bills, bill)
	}
	index = mutate.Annotations(index, version.labels()).(v1.ImageIndex)
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: version.Name})); err != nil {
		return err
	}
	for _, bill := range bills {
		if err := to.AppendImage(bill); err != nil {
			return err
		}
	}
	return nil
}

// bill is the bill of materials as an artifact that refers to the image.
func bill(variant Variant) (v1.Image, error) {
	subject, err := partial.Descriptor(variant.Image)
	if err != nil {
		return nil, err
	}
	out := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbom.MediaType)
	out, err = mutate.AppendLayers(out, static.NewLayer(variant.SBOM, sbom.MediaType))
	if err != nil {
		return nil, err
	}
	return mutate.Subject(out, v1.Descriptor{
		MediaType: subject.MediaType,
		Size:      subject.Size,
		Digest:    subject.Digest,
	}).(v1.Image), nil
}

// NewVariant puts the driver over the tools.
func NewVariant(tools Tools, driver Driver, version Version) (Variant, error) {
	base, err := tools.Layer()
	if err != nil {
		return Variant{}, err
	}
	out := Variant{Architecture: tools.Architecture}
	if out.Image, err = Image(tools.Architecture, base, driver, version); err != nil {
		return Variant{}, err
	}
	out.SBOM, err = sbom.Document(sbom.Subject{
		Name:         title,
		Version:      version.Name,
		Architecture: tools.Architecture,
		Home:         version.Home,
		Created:      version.Created,
		Packages:     tools.Packages,
		Program:      driver.Program,
	})
	return out, err
}

// Size is the number of bytes that a node downloads.
func (v Variant) Size() (int64, error) {
	manifest, err := v.Image.Manifest()
	if err != nil {
		return 0, err
	}
	size := manifest.Config.Size
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return size, nil
}
