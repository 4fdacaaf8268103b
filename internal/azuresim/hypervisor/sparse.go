package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyChunk bounds one step of a copy, so that a cancelled context is noticed soon.
const copyChunk = 64 << 20

// copySparse copies size bytes of from into the empty file to, and leaves holes where from has
// them. A file system that can share blocks shares them, which takes no time and no space.
func copySparse(ctx context.Context, to, from *os.File, size int64) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	for offset := int64(0); offset < size; {
		start, err := unix.Seek(int(from.Fd()), offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		}
		if err != nil {
			return fmt.Errorf("find data: %w", err)
		}
		end, err := unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("find hole: %w", err)
		}
		end = min(end, size)
		if err := copyRange(ctx, to, from, start, end); err != nil {
			return err
		}
		offset = end
	}
	return nil
}

func copyRange(ctx context.Context, to, from *os.File, start, end int64) error {
	for start < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		readAt, writeAt := start, start
		n, err := unix.CopyFileRange(int(from.Fd()), &readAt, int(to.Fd()), &writeAt, int(min(end-start, copyChunk)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL),
			errors.Is(err, unix.ENOSYS):
			var copied int64
			copied, err = io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, min(end-start, copyChunk)))
			n = int(copied)
		}
		if err != nil {
			return fmt.Errorf("copy data: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("copy data: %w", io.ErrUnexpectedEOF)
		}
		start += int64(n)
	}
	return nil
}
