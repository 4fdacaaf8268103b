package recorder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// journal is the open file of records.
type journal struct {
	file *os.File
	// unsynced: records are written, and not made durable.
	unsynced bool
}

// openJournal opens or makes the file in the directory and returns the content that
// it found. Nothing is cut off: damage at the end, which a power cut may leave, gets
// a line end, so that the next record stands on a line of its own.
func openJournal(dir string) (*journal, []byte, error) {
	path := filepath.Join(dir, FileName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, err
	}
	j := &journal{file: file}
	content, err := j.prepare(dir)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return j, content, nil
}

func (j *journal) prepare(dir string) ([]byte, error) {
	content, err := io.ReadAll(j.file)
	if err != nil {
		return nil, err
	}
	if n := len(content); n > 0 && content[n-1] != '\n' {
		return content, j.write([]byte{'\n'})
	}
	if len(content) > 0 {
		return content, nil
	}
	// A new file: its name is durable only when the directory is.
	parent, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(parent.Sync(), parent.Close())
}

// append makes the record durable, unless the journal is unsynced, or returns an error after which
// nothing is known about it.
func (j *journal) append(r Record) error {
	line, err := r.MarshalText()
	if err != nil {
		return err
	}
	return j.write(line)
}

func (j *journal) write(line []byte) error {
	if _, err := j.file.Write(line); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	if j.unsynced {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("make durable: %w", err)
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }

const (
	directAlignment = 4096
	directChunk     = 1 << 20
)

// ReadDisk returns the records of the directory as they are on the disk: it goes
// around the page cache with O_DIRECT where the filesystem can, which the second
// result says. It may run while a writer appends.
func ReadDisk(dir string) ([]byte, bool, error) {
	path := filepath.Join(dir, FileName)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		content, err := os.ReadFile(path)
		return content, false, err
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = file.Close() }()
	content, err := readDirect(file)
	if err != nil {
		return nil, true, fmt.Errorf("read %s around the cache: %w", path, err)
	}
	return content, true, nil
}

func readDirect(file *os.File) ([]byte, error) {
	room := make([]byte, directChunk+directAlignment)
	skip := directAlignment - int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))%directAlignment)
	chunk := room[skip : skip+directChunk]
	var content []byte
	for {
		// Offsets stay aligned: only the read that meets the end of the file is short.
		n, err := file.ReadAt(chunk, int64(len(content)))
		content = append(content, chunk[:n]...)
		if errors.Is(err, io.EOF) || n < len(chunk) && err == nil {
			return content, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
