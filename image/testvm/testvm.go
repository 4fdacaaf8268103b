// Package testvm makes the kernel and the root filesystem of the virtual machine that `make
// vm-test` starts: Debian's kernel with the modules that the tests need, the filesystem tools of
// the driver's image, and udev.
package testvm

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	_ "embed" // the lock file
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/cavaliergopher/cpio"

	"github.com/azuredisk-csi/azuredisk/image"
	"github.com/azuredisk-csi/azuredisk/image/debian"
	"github.com/azuredisk-csi/azuredisk/image/rootfs"
)

// LockText is the lock file.
//
//go:embed packages.lock.yaml
var LockText []byte

// Architecture is that of the virtual machine.
const Architecture = "amd64"

// Named are the packages that files are taken from. linux-image-amd64 is empty and depends on the
// newest kernel.
var Named = append(slices.Clone(image.Named), "libopeniscsiusr", "linux-image-amd64", "open-iscsi", "udev")

// files are the patterns of the files that are taken besides those of the driver's image.
var files = []string{
	"boot/vmlinuz-*", "usr/*bin/blockdev", "usr/*bin/dumpe2fs", "usr/*bin/iscsistart", "usr/*bin/losetup", "usr/*bin/partx",
	"usr/*bin/udevadm",
	"usr/lib/systemd/systemd-udevd", "usr/lib/udev/rules.d/*", "usr/lib/udev/scsi_id",
}

// modules are the kernel modules that are loaded when the machine starts, in this order, each after
// those that it depends on. A checksum comes before the filesystem that asks for it by name.
var modules = []string{
	"virtio_pci", "virtio_console", "sd_mod", "vmw_pvscsi", "virtio_scsi", "nvme",
	"crc32c_generic", "libcrc32c", "blake2b_generic", "xxhash_generic", "ext4", "xfs", "btrfs", "loop", "fuse",
	"9pnet_virtio", "9p", "target_core_mod", "iscsi_target_mod", "iscsi_tcp", "nvmet_tcp", "nvme_tcp",
}

// Modules is the file that lists the modules of the root filesystem by path, in the order in which
// to load them.
const Modules = "etc/modules.load"

// Inputs are all that decides what Fetch returns, besides the code of this module.
func Inputs() string {
	return string(LockText) + strings.Join(slices.Concat(image.Files(), files, modules), "\n")
}

// VM is what a virtual machine starts with.
type VM struct {
	Kernel []byte
	Tree   rootfs.Tree
	// Packages are the packages that the files come from.
	Packages []debian.Package
}

// Fetch downloads the packages of the lock and makes the machine of them.
func Fetch(ctx context.Context, from debian.Fetcher, lock debian.Lock) (VM, error) {
	all, _, err := rootfs.Fetch(ctx, from, lock, Architecture)
	if err != nil {
		return VM{}, err
	}
	paths, err := withDependencies(all, modules)
	if err != nil {
		return VM{}, err
	}
	target := rootfs.Platforms[slices.IndexFunc(rootfs.Platforms,
		func(p rootfs.Platform) bool { return p.Architecture == Architecture })]
	tree, err := all.Select(target, slices.Concat(image.Files(), files, paths))
	if err != nil {
		return VM{}, fmt.Errorf("%w (`make image-lock` chooses the packages again)", err)
	}
	vm := VM{Tree: tree, Packages: tree.Used(lock.Packages[Architecture])}
	for name, file := range tree {
		if strings.HasPrefix(name, "boot/") {
			vm.Kernel = file.Data
			delete(tree, name)
		}
	}
	tree.AddMergedLinks()
	tree.Put(Modules, 0o644, strings.Join(paths, "\n")+"\n")
	tree.Put("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n")
	tree.Put("etc/hosts", 0o644, "127.0.0.1 localhost\n")
	tree.Put("etc/group", 0o644, "root:x:0:\ndisk:x:6:\n")
	return vm, nil
}

// withDependencies returns the paths of the modules and of those that they depend on, which come
// first.
func withDependencies(all rootfs.Tree, names []string) ([]string, error) {
	paths := map[string]string{}
	for name := range all {
		if path.Ext(name) == ".ko" {
			paths[moduleName(path.Base(name))] = name
		}
	}
	var ordered []string
	taken := map[string]bool{}
	var take func(name string) error
	take = func(name string) error {
		if name = moduleName(name); taken[name] {
			return nil
		}
		taken[name] = true
		file, ok := paths[name]
		if !ok {
			return fmt.Errorf("the kernel's package has no module %s", name)
		}
		needs, err := moduleNeeds(all[file].Data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, needed := range needs {
			if err := take(needed); err != nil {
				return fmt.Errorf("%s needs: %w", name, err)
			}
		}
		ordered = append(ordered, file)
		return nil
	}
	for _, name := range names {
		if err := take(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// moduleName is the name that the kernel gives to a module's file.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(file, ".ko"), "-", "_")
}

// moduleNeeds returns the names of the modules that a module depends on.
func moduleNeeds(data []byte) ([]string, error) {
	object, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	section := object.Section(".modinfo")
	if section == nil {
		return nil, errors.New("not a kernel module: it has no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if names, ok := strings.CutPrefix(entry, "depends="); ok && names != "" {
			return strings.Split(names, ","), nil
		}
	}
	return nil, nil
}

// WriteCPIO writes the tree as an archive that the kernel unpacks. The kernel also unpacks several
// archives one after the other.
func WriteCPIO(to io.Writer, tree rootfs.Tree) error {
	w := cpio.NewWriter(to)
	for _, header := range entries(tree) {
		if err := w.WriteHeader(&header); err != nil {
			return fmt.Errorf("write %s: %w", header.Name, err)
		}
		file := tree[header.Name]
		content := file.Data
		if file.Link != "" {
			content = []byte(file.Link)
		}
		if _, err := w.Write(content); err != nil {
			return fmt.Errorf("write %s: %w", header.Name, err)
		}
	}
	return w.Close()
}

// entries are the entries of the tree's archive, in order of paths: a folder comes before what is
// in it.
func entries(tree rootfs.Tree) []cpio.Header {
	var list []cpio.Header
	folders := map[string]bool{".": true}
	for name, file := range tree {
		for dir := path.Dir(name); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
			list = append(list, cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755})
		}
		header := cpio.Header{
			Name: name,
			Mode: cpio.TypeReg | cpio.FileMode(file.Mode&fs.ModePerm),
			Size: int64(len(file.Data)),
		}
		if file.Link != "" {
			header.Mode, header.Size = cpio.TypeSymlink|0o777, int64(len(file.Link))
		}
		list = append(list, header)
	}
	slices.SortFunc(list, func(a, b cpio.Header) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
