package images

import (
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// plainLayer is a layer that is stored as it is: compressing what never leaves this
// machine would cost more time than anything else here.
type plainLayer struct {
	open func() (io.ReadCloser, error)
	hash v1.Hash
	size int64
}

// newPlainLayer reads the tar that open opens, which must give the same bytes each time.
func newPlainLayer(open func() (io.ReadCloser, error)) (v1.Layer, error) {
	content, err := open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	hash, size, err := v1.SHA256(content)
	if err != nil {
		return nil, err
	}
	return &plainLayer{
		open: open,
		hash: hash,
		size: size,
	}, nil
}

// Digest is that of the tar.
func (l *plainLayer) Digest() (v1.Hash, error) { return l.hash, nil }

// DiffID is that of the tar, too.
func (l *plainLayer) DiffID() (v1.Hash, error) { return l.hash, nil }

// Compressed is the tar, not compressed.
func (l *plainLayer) Compressed() (io.ReadCloser, error) { return l.open() }

// Uncompressed is the tar.
func (l *plainLayer) Uncompressed() (io.ReadCloser, error) { return l.open() }

// Size is that of the tar.
func (l *plainLayer) Size() (int64, error) { return l.size, nil }

// MediaType is that of a layer without compression.
func (l *plainLayer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }
