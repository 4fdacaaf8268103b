package hypervisor

import (
	"errors"
	"os"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	blockSize    = 4096    // what statfs says; the loop driver takes it as the discard granularity
	maxIOBytes   = 1 << 20 // the most that one FUSE request carries
	rootNode     = 1
	backgroundIO = 64 // asynchronous requests that the kernel keeps in flight
)

// fuseFS is a flat FUSE file system of cutFiles. It holds no state of its own: a file that it does
// not know (any more) answers EIO.
type fuseFS struct {
	fuse.RawFileSystem

	mu     sync.RWMutex
	next   uint64
	byNode map[uint64]*cutFile
	byName map[string]*cutFile
}

func newFuseFS() *fuseFS {
	return &fuseFS{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		next:          rootNode,
		byNode:        map[uint64]*cutFile{},
		byName:        map[string]*cutFile{},
	}
}

// add gives the file its inode number and shows it.
func (fs *fuseFS) add(file *cutFile) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.next++
	file.node = fs.next
	fs.byNode[file.node] = file
	fs.byName[file.name] = file
}

// remove forgets the file. What is still open on it gets EIO from then on.
func (fs *fuseFS) remove(file *cutFile) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.byNode, file.node)
	delete(fs.byName, file.name)
}

func (fs *fuseFS) file(node uint64) *cutFile {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	return fs.byNode[node]
}

func (fs *fuseFS) String() string { return "azuresim" }

// Lookup finds a file by name. Attributes and entries are not cached by the kernel: the loop driver
// asks when it is configured and resized, and reads and writes ask nothing.
func (fs *fuseFS) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	fs.mu.RLock()
	file := fs.byName[name]
	fs.mu.RUnlock()
	if file == nil || header.NodeId != rootNode {
		return fuse.ENOENT
	}
	out.NodeId = file.node
	return fileAttributes(file, &out.Attr)
}

// GetAttr serves the size of a file.
func (fs *fuseFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == rootNode {
		out.Ino, out.Mode, out.Nlink = rootNode, unix.S_IFDIR|0o700, 2
		return fuse.OK
	}
	file := fs.file(in.NodeId)
	if file == nil {
		return fuse.EIO
	}
	return fileAttributes(file, &out.Attr)
}

func fileAttributes(file *cutFile, out *fuse.Attr) fuse.Status {
	file.mu.RLock()
	defer file.mu.RUnlock()
	if file.barred.Load() {
		return fuse.EIO
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.backing.Fd()), &stat); err != nil {
		return fuse.ToStatus(err)
	}
	out.Ino, out.Mode, out.Nlink = file.node, unix.S_IFREG|0o600, 1
	out.Size, out.Blocks, out.Blksize = uint64(stat.Size), uint64(stat.Blocks), blockSize
	return fuse.OK
}

// Open makes the kernel send every read and write here, uncached, and writes in parallel.
func (fs *fuseFS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if fs.file(in.NodeId) == nil {
		return fuse.EIO
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES | fuse.FOPEN_NOFLUSH
	return fuse.OK
}

func (fs *fuseFS) access(node uint64, write bool, op func(*os.File) error) fuse.Status {
	file := fs.file(node)
	if file == nil {
		return fuse.EIO
	}
	return fuse.ToStatus(errnoOf(file.access(write, op)))
}

// Read copies the data before it returns: a result that the kernel fetched later could pass the
// cut.
func (fs *fuseFS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	var n int
	status := fs.access(in.NodeId, false, func(f *os.File) error {
		var err error
		n, err = preadFull(int(f.Fd()), buf[:min(len(buf), int(in.Size))], int64(in.Offset))
		return err
	})
	if !status.Ok() {
		return nil, status
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Write returns when the backing file has the data; it is durable after Fsync.
func (fs *fuseFS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	status := fs.access(in.NodeId, true, func(f *os.File) error {
		return pwriteFull(int(f.Fd()), data, int64(in.Offset))
	})
	if !status.Ok() {
		return 0, status
	}
	return uint32(len(data)), fuse.OK
}

// Writev is Write; go-fuse calls it first.
func (fs *fuseFS) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if len(data) == 1 {
		return fs.Write(cancel, in, data[0])
	}
	return 0, fuse.ENOSYS
}

// Fsync makes the backing file durable: this is the disk's flush.
func (fs *fuseFS) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fs.access(in.NodeId, true, func(f *os.File) error {
		return ignoringEINTR(func() error { return unix.Fdatasync(int(f.Fd())) })
	})
}

// Fallocate serves discard (punch hole) and write-zeroes (zero range), the only two that the loop
// driver sends.
func (fs *fuseFS) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	const supported = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE
	if in.Mode&unix.FALLOC_FL_KEEP_SIZE == 0 || in.Mode&^uint32(supported) != 0 {
		return fuse.Status(unix.EOPNOTSUPP)
	}
	return fs.access(in.NodeId, true, func(f *os.File) error {
		return ignoringEINTR(func() error {
			return unix.Fallocate(int(f.Fd()), in.Mode, int64(in.Offset), int64(in.Length))
		})
	})
}

// StatFs tells the loop driver the discard granularity.
func (fs *fuseFS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize, out.NameLen = blockSize, blockSize, unix.NAME_MAX
	return fuse.OK
}

func preadFull(fd int, buf []byte, offset int64) (int, error) {
	done := 0
	for done < len(buf) {
		n, err := unix.Pread(fd, buf[done:], offset+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, err
		}
		if n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

func pwriteFull(fd int, data []byte, offset int64) error {
	for len(data) > 0 {
		n, err := unix.Pwrite(fd, data, offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}

func ignoringEINTR(op func() error) error {
	for {
		if err := op(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// errnoOf reduces err to what a block device can say.
func errnoOf(err error) error {
	var errno unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &errno):
		return errno
	}
	return unix.EIO
}
