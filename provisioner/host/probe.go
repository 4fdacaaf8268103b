package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// blankArea is how much of either end of a device must read as zeroes.
const blankArea = 1 << 20

// Exit codes of blkid -p.
const (
	blkidFound      = 0
	blkidNothing    = 2
	blkidAmbivalent = 8
)

// signature is the result of the low-level probing of a device.
type signature struct {
	fs provisioner.Filesystem
	// other is a partition table, or several signatures that contradict each other.
	other bool
}

func (s signature) none() bool { return s == signature{} }

// Probe implements provisioner.Filesystems. blkid bypasses its cache (-p) and
// looks at the device only.
func (f filesystems) Probe(ctx context.Context, device string) (fs provisioner.Filesystem, blank bool, err error) {
	found, zeroes, err := f.inspect(ctx, device)
	if err != nil {
		return provisioner.Filesystem{}, false, err
	}
	return found.fs, found.none() && zeroes, nil
}

func (f filesystems) inspect(ctx context.Context, device string) (found signature, zeroes bool, err error) {
	// Read first: blkid answers "nothing" also for a device that it cannot read.
	zeroes, err = bounded(ctx, func() (bool, error) { return endsAreZero(device) })
	if err != nil {
		if ctx.Err() != nil {
			return signature{}, false, fmt.Errorf("read %s: %w", device, err)
		}
		return signature{}, false, provisioner.Errorf(provisioner.Unavailable, "read %s: %w", device, err)
	}
	found, err = f.signature(ctx, device)
	return found, zeroes, err
}

func (f filesystems) signature(ctx context.Context, device string) (signature, error) {
	ended, err := f.run(ctx, "blkid", "-p", "-o", "export", device)
	if err != nil {
		return signature{}, err
	}
	switch ended.code {
	case blkidFound:
		return parseSignature(ended.output), nil
	case blkidNothing:
		return signature{}, nil
	case blkidAmbivalent:
		return signature{other: true}, nil
	default:
		return signature{}, provisioner.Errorf(provisioner.Unavailable, "blkid %s: exit code %d: %s", device, ended.code,
			ended.output)
	}
}

// parseSignature reads NAME=value lines. Whatever blkid found that is not a
// filesystem still counts as a signature.
func parseSignature(export string) signature {
	values := map[string]string{}
	for line := range strings.Lines(export) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[name] = value
		}
	}
	fs := provisioner.Filesystem{Type: values["TYPE"], UUID: strings.ToLower(values["UUID"])}
	return signature{fs: fs, other: fs.Type == "" || values["PTTYPE"] != ""}
}

func endsAreZero(device string) (bool, error) {
	file, err := openDevice(device, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	buffer := make([]byte, min(blankArea, size))
	for _, offset := range []int64{0, size - int64(len(buffer))} {
		if _, err := file.ReadAt(buffer, offset); err != nil {
			return false, err
		}
		for _, b := range buffer {
			if b != 0 {
				return false, nil
			}
		}
	}
	return size > 0, nil
}
