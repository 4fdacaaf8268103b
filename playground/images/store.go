// Package images makes container images on the spot, without a registry and
// without a container engine: a program becomes an image of one layer, and the driver
// the image that `make image` makes. Images are tar files in a cache, named by what went
// into them, and are made of the same bytes each time.
package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/azuredisk-csi/azuredisk/playground/cache"
)

// Registry is the part before the slash of the names of all images made here.
const Registry = "azuredisk.local"

// keyLength is the number of digits by which the content of an image is known.
const keyLength = 16

// layout changes whenever images are to be made again from the same input.
const layout = "3"

// Image is an image in the cache.
type Image struct {
	// Ref is its name and tag.
	Ref string
	// Tar is the path of the image tar.
	Tar string
}

// Store makes images and keeps them.
type Store struct {
	// Cache is the root of the cache; images go to Cache/images.
	Cache string
	// Progress receives a line for each step that takes long. It may be nil.
	Progress func(format string, args ...any)
}

// Static makes an image of one statically linked program: azuredisk.local/<name>:<tag>.
// If the tag is empty, it is the hash of the program.
func (s *Store) Static(ctx context.Context, image, tag, program string) (Image, error) {
	return s.make(ctx, image, tag, program, "",
		func(data []byte) (v1.Image, error) { return static(data, "/"+filepath.Base(image)) })
}

// make makes the image of a program, unless the cache has it. with is the rest of what goes into
// the image.
func (s *Store) make(ctx context.Context, image, tag, program, with string,
	build func(program []byte) (v1.Image, error)) (Image, error) {
	if err := ctx.Err(); err != nil {
		return Image{}, err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return Image{}, err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, layout, image, tag, with)
	hash.Write(data)
	key := hex.EncodeToString(hash.Sum(nil))[:keyLength]
	if tag == "" {
		tag = key
	}
	out := Image{Ref: fmt.Sprintf("%s/%s:%s", Registry, image, tag), Tar: s.path(image + "-" + key + ".tar")}
	return out, s.once(ctx, out.Tar, func() error {
		s.progress("making image %s", out.Ref)
		built, err := build(data)
		if err != nil {
			return fmt.Errorf("make image %s: %w", out.Ref, err)
		}
		if err := s.write(out, built); err != nil {
			return err
		}
		return cache.Prune(s.path(image+"-"+strings.Repeat("[0-9a-f]", keyLength)+".tar"), kept)
	})
}

// once makes what the cache does not have under the path. Of several processes that miss it one
// makes it, and the others find it then.
func (s *Store) once(ctx context.Context, path string, missing func() error) error {
	if cache.Use(path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unlock, err := cache.Lock(ctx, s.path("lock"), func() { s.progress("waiting for another process, which is making images") })
	if err != nil {
		return err
	}
	defer unlock()
	if cache.Use(path) {
		return nil
	}
	return missing()
}

// kept is how many versions of an image stay in the cache.
const kept = 3

func (s *Store) write(out Image, built v1.Image) error {
	ref, err := name.NewTag(out.Ref)
	if err != nil {
		return err
	}
	partial := fmt.Sprintf("%s.partial.%d", out.Tar, os.Getpid())
	defer os.Remove(partial)
	if err := tarball.WriteToFile(partial, ref, built); err != nil {
		return fmt.Errorf("write image %s: %w", out.Ref, err)
	}
	return os.Rename(partial, out.Tar)
}

// static is an image of one program.
func static(program []byte, path string) (v1.Image, error) {
	layer, err := programLayer(program, path)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{path}
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return mutate.ConfigFile(image, config)
}

// programLayer holds the program and an empty /tmp.
func programLayer(program []byte, path string) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir,
		Name:     "tmp/",
		Mode:     0o1777,
		ModTime:  epoch,
	}); err != nil {
		return nil, err
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     path[1:],
		Mode:     0o755,
		Size:     int64(len(program)),
		ModTime:  epoch,
	}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return newPlainLayer(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	})
}

// epoch is the time of all files in images, so that equal content has equal digests.
var epoch = time.Unix(0, 0).UTC()

func (s *Store) path(name string) string { return filepath.Join(s.Cache, "images", name) }

func (s *Store) progress(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(format, args...)
	}
}
