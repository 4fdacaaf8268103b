// Package image makes the container image of the driver: the filesystem tools of Debian in one
// layer, and the driver in a second one. It needs no container engine, no root and no program of
// Debian, and makes every platform on every machine. The same input gives the same bytes.
package image

import (
	"bytes"
	"context"
	_ "embed" // the lock file
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/azuredisk-csi/azuredisk/image/debian"
	"github.com/azuredisk-csi/azuredisk/image/rootfs"
)

// LockText is the lock file.
//
//go:embed packages.lock.yaml
var LockText []byte

// Inputs are all that decides which tools an image has, besides the code of this module.
func Inputs() string { return string(LockText) + strings.Join(Files(), "\n") }

const (
	// Entrypoint is the driver's path in the image.
	Entrypoint = "/azuredisk"
	title      = "azuredisk"
	// documents is where Debian has the licences of packages.
	documents = "usr/share/doc/azuredisk/"
)

// Platforms are the architectures that the lock file has packages for, as Go names them.
func Platforms() []string {
	var names []string
	for _, p := range rootfs.Platforms {
		names = append(names, p.Architecture)
	}
	return names
}

func platform(architecture string) (rootfs.Platform, error) {
	for _, p := range rootfs.Platforms {
		if p.Architecture == architecture {
			return p, nil
		}
	}
	return rootfs.Platform{}, fmt.Errorf("no image can be made for the architecture %q; want one of %v", architecture,
		Platforms())
}

// Version says what the driver in the image is. It goes into the image's labels.
type Version struct {
	// Name is the driver's version, and Revision the commit that it is built from.
	Name, Revision string
	// Created is the time of the commit, not of the build.
	Created time.Time
	// Home is the URL of the repository.
	Home string
}

// Tools are the files of an image besides the driver.
type Tools struct {
	// Architecture is that of the programs.
	Architecture string
	Tree         rootfs.Tree
	// Packages are the packages that the files come from.
	Packages []debian.Package
}

// FetchTools downloads the packages of the lock for the architecture and takes the files of the
// image from them.
func FetchTools(ctx context.Context, from debian.Fetcher, lock debian.Lock, architecture string) (Tools, error) {
	target, err := platform(architecture)
	if err != nil {
		return Tools{}, err
	}
	all, control, err := rootfs.Fetch(ctx, from, lock, architecture)
	if err != nil {
		return Tools{}, err
	}
	tree, err := all.Select(target, Files())
	if err != nil {
		return Tools{}, fmt.Errorf("%w (`make image-lock` chooses the packages again)", err)
	}
	if err := tree.AddSystem(all, control); err != nil {
		return Tools{}, err
	}
	packages := tree.Used(lock.Packages[architecture])
	return Tools{
		Architecture: architecture,
		Tree:         tree,
		Packages:     packages,
	}, nil
}

// Layer returns the tools as a layer of an image.
func (t Tools) Layer() (v1.Layer, error) { return layer(t.Tree, true) }

func layer(tree rootfs.Tree, complete bool) (v1.Layer, error) {
	var buffer bytes.Buffer
	if err := tree.WriteTar(&buffer, complete); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// Driver is what the layer of the driver has.
type Driver struct {
	// Program is a static program.
	Program []byte
	// Licence is that of the project, and Notices are those of the modules that the program is built
	// from. An image that is released has both.
	Licence, Notices []byte
}

func (d Driver) tree() rootfs.Tree {
	tree := rootfs.Tree{}
	tree.Put(Entrypoint[1:], 0o755, string(d.Program))
	for name, text := range map[string][]byte{"LICENSE": d.Licence, "THIRD-PARTY-NOTICES": d.Notices} {
		if len(text) > 0 {
			tree.Put(documents+name, 0o644, string(text))
		}
	}
	return tree
}

// Image returns the image of the driver for the architecture. tools is the layer of the tools for
// the same one.
func Image(architecture string, tools v1.Layer, driver Driver, version Version) (v1.Image, error) {
	if err := checkProgram(architecture, driver.Program); err != nil {
		return nil, fmt.Errorf("the driver for linux/%s: %w", architecture, err)
	}
	driverLayer, err := layer(driver.tree(), false)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: version.Created.UTC()}
	out := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	out, err = mutate.Append(out,
		mutate.Addendum{Layer: tools, History: v1.History{Created: created, CreatedBy: "filesystem tools of Debian"}},
		mutate.Addendum{Layer: driverLayer, History: v1.History{Created: created, CreatedBy: "the driver"}})
	if err != nil {
		return nil, err
	}
	config, err := out.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture, created
	config.Config = v1.Config{
		Entrypoint: []string{Entrypoint},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		// The node plug-in mounts and has to be root; the chart says so.
		User:   rootfs.NonRoot + ":" + rootfs.NonRoot,
		Labels: version.labels(),
	}
	if out, err = mutate.ConfigFile(out, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(out, version.labels()).(v1.Image), nil
}

func checkProgram(architecture string, program []byte) error {
	target, err := platform(architecture)
	if err != nil {
		return err
	}
	needed, err := rootfs.Needs(target, program)
	if err != nil {
		return err
	}
	if !rootfs.IsProgram(program) || len(needed) > 0 {
		return errors.New("not a static program; build it with CGO_ENABLED=0")
	}
	return nil
}

// labels are those of https://github.com/opencontainers/image-spec/blob/main/annotations.md.
func (v Version) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": title, prefix + "description": "Azure Disk CSI driver: controller, node plug-in and scheduler extender",
		prefix + "version": v.Name, prefix + "revision": v.Revision, prefix + "created": v.Created.UTC().Format(time.RFC3339),
		prefix + "source": v.Home, prefix + "url": v.Home, prefix + "licenses": "Apache-2.0",
	}
}
