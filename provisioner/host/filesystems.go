package host

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

type filesystems struct{ *Host }

// Make implements provisioner.Filesystems. mkfs runs without discarding: the disk is
// new, and a discard of a large one takes longer than a caller waits.
func (f filesystems) Make(ctx context.Context, device string, fs provisioner.Filesystem,
	options provisioner.FilesystemOptions) error {
	args, err := makeArguments(fs, options)
	if err != nil {
		return err
	}
	_, blank, err := f.Probe(ctx, device)
	if err != nil {
		return err
	}
	if !blank {
		return provisioner.Errorf(provisioner.FailedPrecondition, "refusing to format device %s: it is not blank", device)
	}
	return f.runToEnd(ctx, device, "mkfs."+fs.Type, append(args, device)...)
}

// makeArguments never holds -f of xfs and btrfs: without it these refuse a
// device that carries a signature. -F of ext says only that the device may be a whole disk.
func makeArguments(fs provisioner.Filesystem, options provisioner.FilesystemOptions) ([]string, error) {
	if fs.UUID == "" {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "the filesystem to make has no UUID")
	}
	var args []string
	option := func(flag, prefix string, value *int64) {
		if *value != 0 {
			args = append(args, flag, prefix+strconv.FormatInt(*value, 10))
			*value = 0
		}
	}
	switch fs.Type {
	case "ext4", "ext3", "ext2":
		args = []string{"-F", "-q", "-m0", "-E", "nodiscard", "-U", fs.UUID}
		option("-b", "", &options.BlockSizeBytes)
		option("-I", "", &options.InodeSizeBytes)
		option("-i", "", &options.BytesPerInode)
		option("-N", "", &options.NumberOfInodes)
	case "xfs":
		args = []string{"-q", "-K", "-m", "uuid=" + fs.UUID}
		option("-b", "size=", &options.BlockSizeBytes)
		option("-i", "size=", &options.InodeSizeBytes)
	case "btrfs":
		args = []string{"-q", "-K", "-U", fs.UUID}
	default:
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "filesystem type %q: must be ext4, xfs, ext3, ext2 or btrfs",
			fs.Type)
	}
	if options != (provisioner.FilesystemOptions{}) {
		return nil, provisioner.Errorf(provisioner.InvalidArgument, "make filesystem: %s does not take the options %+v", fs.Type,
			options)
	}
	return args, nil
}

// Unmake implements provisioner.Filesystems. It overwrites the ends of the device and
// nothing else: that is what Probe calls blank, and mkfs writes all that it needs.
func (f filesystems) Unmake(ctx context.Context, device string, fs provisioner.Filesystem) error {
	if _, err := makeArguments(fs, provisioner.FilesystemOptions{}); err != nil {
		return err
	}
	found, zeroes, err := f.inspect(ctx, device)
	if err != nil {
		return err
	}
	if found.none() && zeroes {
		return nil
	}
	if !found.none() && (found.other || found.fs != fs) {
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"device %s carries %q with UUID %q and not the remains of %s with UUID %s", device, found.fs.Type, found.fs.UUID,
			fs.Type, fs.UUID)
	}
	if err := zeroEnds(device); err != nil {
		return provisioner.Errorf(provisioner.Unavailable, "clear %s: %w", device, err)
	}
	_, blank, err := f.Probe(ctx, device)
	if err != nil {
		return err
	}
	if !blank {
		return provisioner.Errorf(provisioner.FailedPrecondition, "device %s does not read blank after its ends were cleared",
			device)
	}
	return nil
}

func zeroEnds(device string) error {
	// Exclusively: a device that is mounted, or that an mkfs still works on, is not touched.
	file, err := openDevice(device, os.O_RDWR|os.O_EXCL)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	zeroes := make([]byte, min(blankArea, size))
	for _, offset := range []int64{size - int64(len(zeroes)), 0} {
		if _, err := file.WriteAt(zeroes, offset); err != nil {
			return err
		}
	}
	return file.Sync()
}

// Check implements provisioner.Filesystems. The journal of xfs and the log of btrfs are
// replayed by the mount; there is nothing to do before it.
func (f filesystems) Check(ctx context.Context, device string, fs provisioner.Filesystem) error {
	if !isExt(fs.Type) {
		return nil
	}
	return f.runE2fsck(ctx, device, fs, "-p")
}

// extIsClean reports whether the superblock calls the filesystem clean, and free of errors. `e2fsck
// -p` then replays the journal at most.
func extIsClean(device string) (bool, error) {
	file, err := openDevice(device, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close()
	const (
		stateOffset = 1024 + 58 // s_state of struct ext4_super_block
		valid       = 1
		hasErrors   = 2
	)
	var state [2]byte
	if _, err := file.ReadAt(state[:], stateOffset); err != nil {
		return false, err
	}
	return binary.LittleEndian.Uint16(state[:])&(valid|hasErrors) == valid, nil
}

func (f filesystems) runE2fsck(ctx context.Context, device string, fs provisioner.Filesystem, flags ...string) error {
	ended, err := f.runCheck(ctx, device, flags...)
	if err != nil {
		return err
	}
	const (
		corrected   = 1 | 2
		uncorrected = 4
	)
	switch {
	case ended.code&^corrected == 0:
		return nil
	case strings.Contains(ended.output, unsupportedFeature):
		return f.unchecked(ctx, device, fs, ended.output)
	case ended.code&uncorrected != 0:
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"cannot use device %s: e2fsck cannot repair its %s filesystem automatically; repair it manually: %s", device, fs.Type,
			ended.output).With(provisioner.FilesystemDamaged)
	default:
		return provisioner.Errorf(provisioner.Unavailable, "e2fsck %s: exit code %d: %s", device, ended.code, ended.output)
	}
}

// unsupportedFeature is what e2fsck says of a filesystem that a newer version of it has made. Its exit code then is
// that of other failures.
const unsupportedFeature = "has unsupported feature(s)"

// unchecked decides about a filesystem that e2fsck cannot check. The kernel replays the journal of a clean one, and
// refuses the features that it does not know itself.
func (f filesystems) unchecked(ctx context.Context, device string, fs provisioner.Filesystem, output string) error {
	clean, err := bounded(ctx, func() (bool, error) { return extIsClean(device) })
	if err != nil {
		return err
	}
	if !clean {
		return provisioner.Errorf(provisioner.FailedPrecondition,
			"cannot use device %s: its %s filesystem has errors, and this e2fsck does not know all features of it; "+
				"repair it manually with the e2fsck of the system that made it: %s", device, fs.Type, output).
			With(provisioner.FilesystemDamaged)
	}
	logr.FromContextOrDiscard(ctx).Info("a clean filesystem is used without a check: this e2fsck does not know all features of it",
		"device", device, "output", output)
	return nil
}

func isExt(fsType string) bool { return strings.HasPrefix(fsType, "ext") }

// Stats implements provisioner.Filesystems.
func (f filesystems) Stats(ctx context.Context, path string) (provisioner.FilesystemStats, error) {
	stat, err := bounded(ctx, func() (unix.Statfs_t, error) {
		var stat unix.Statfs_t
		err := unix.Statfs(path, &stat)
		return stat, err
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return provisioner.FilesystemStats{}, err
	case os.IsNotExist(err):
		return provisioner.FilesystemStats{}, provisioner.Errorf(provisioner.NotFound, "stat filesystem at %s: %w", path, err)
	case err != nil:
		return provisioner.FilesystemStats{}, provisioner.Errorf(provisioner.Unavailable, "stat filesystem at %s: %w", path, err)
	}
	block := stat.Bsize
	return provisioner.FilesystemStats{
		TotalBytes:      int64(stat.Blocks) * block,
		UsedBytes:       int64(stat.Blocks-stat.Bfree) * block,
		AvailableBytes:  int64(stat.Bavail) * block,
		TotalInodes:     int64(stat.Files),
		UsedInodes:      int64(stat.Files - stat.Ffree),
		AvailableInodes: int64(stat.Ffree),
	}, nil
}
