package host

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Renew implements provisioner.Filesystems. What it runs changes superblocks and nothing else,
// whatever the size of the filesystem, so that it is over soon and there is nothing half-done to be
// found after a kill.
func (f filesystems) Renew(ctx context.Context, device string, fs provisioner.Filesystem, uuid string) error {
	want := provisioner.Filesystem{Type: fs.Type, UUID: uuid}
	if _, err := makeArguments(want, provisioner.FilesystemOptions{}); err != nil {
		return err
	}
	found, err := f.signature(ctx, device)
	switch {
	case err != nil:
		return err
	case !found.other && found.fs == want:
		return nil
	case found.other || found.fs != fs:
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"device %s carries %q with UUID %q and not %s with UUID %s", device, found.fs.Type, found.fs.UUID, fs.Type, fs.UUID)
	}
	if err := f.mustBeFree(ctx, device); err != nil {
		return err
	}
	switch {
	case isExt(fs.Type):
		err = f.renewExt(ctx, device, fs, uuid)
	case fs.Type == "xfs":
		err = f.renewXFS(ctx, device, uuid)
	default:
		// The other way to change it writes to every block of metadata. The log tree needs no
		// replay for this one.
		err = f.runToEnd(ctx, device, "btrfstune", "-f", "-M", uuid, device)
	}
	if err != nil {
		return err
	}
	if found, err = f.signature(ctx, device); err != nil {
		return err
	}
	if found.other || found.fs != want {
		return provisioner.Errorf(provisioner.Unavailable, "device %s carries %q with UUID %q after its UUID was changed to %s",
			device, found.fs.Type, found.fs.UUID, uuid)
	}
	return nil
}

// mustBeFree returns a Conflict while anything holds the device, also a mount in another mount
// namespace.
func (f filesystems) mustBeFree(ctx context.Context, device string) error {
	_, err := bounded(ctx, func() (struct{}, error) {
		file, err := openDevice(device, os.O_RDONLY|os.O_EXCL)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, file.Close()
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err
	default:
		return provisioner.Errorf(provisioner.Conflict, "device %s is in use: %w", device, err)
	}
}

// renewExt replays the journal first. The checksums of a filesystem with metadata_csum start from
// its UUID; unless the start is stored separately, all of them would have to be rewritten, which
// takes minutes, and a kill during that would leave a mixture.
func (f filesystems) renewExt(ctx context.Context, device string, fs provisioner.Filesystem, uuid string) error {
	if err := f.runE2fsck(ctx, device, fs, "-p"); err != nil {
		return err
	}
	seedless, err := bounded(ctx, func() (bool, error) { return extChecksumsFromUUID(device) })
	if err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "read superblock of %s: %w", device, err)
	}
	if seedless {
		if err := f.runToEnd(ctx, device, "tune2fs", "-O", "metadata_csum_seed", device); err != nil {
			return err
		}
	}
	return f.runToEnd(ctx, device, "tune2fs", "-U", uuid, device)
}

// Further offsets in the ext superblock.
const (
	extReadOnlyCompatible = 0x64
	extMetadataChecksums  = 0x400
	extChecksumSeed       = 0x2000
)

func extChecksumsFromUUID(device string) (bool, error) {
	file, err := openDevice(device, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close()
	super := make([]byte, 1024)
	if _, err := file.ReadAt(super, extSuperblock); err != nil {
		return false, err
	}
	word := func(offset int) uint32 { return binary.LittleEndian.Uint32(super[offset:]) }
	return word(extReadOnlyCompatible)&extMetadataChecksums != 0 && word(extIncompatible)&extChecksumSeed == 0, nil
}

// renewXFS makes the kernel replay the log, without which the UUID cannot be changed. It mounts the
// device in a mount namespace of its own, which ends with the command even if this process is
// killed, and mounts it over the directory of the device, because that directory always exists.
// nouuid: the source of the copy may be mounted.
func (f filesystems) renewXFS(ctx context.Context, device, uuid string) error {
	const replay = `mount -t xfs -o nouuid,nosuid,nodev,noexec "$1" "$2" && umount "$2"`
	if err := f.runToEnd(ctx, device, "unshare", "--mount", "--propagation", "private", "sh", "-c", replay, "sh", device,
		filepath.Dir(device)); err != nil {
		return err
	}
	if err := f.mustBeFree(ctx, device); err != nil {
		return err
	}
	return f.runToEnd(ctx, device, "xfs_admin", "-U", uuid, device)
}
