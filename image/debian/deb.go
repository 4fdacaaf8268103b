package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/blakesmith/ar"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Deb is an unpacked package.
type Deb struct {
	// Control is the text of its control file.
	Control []byte
	// Files are its regular files and symbolic links.
	Files []File
}

// File is a regular file or a symbolic link.
type File struct {
	// Path has no slash at its beginning.
	Path string
	// Mode are the permissions, without set-user-ID and the like.
	Mode fs.FileMode
	// Link is the target of a symbolic link; it is empty for a regular file.
	Link string
	Data []byte
}

// Unpack reads a package. It runs none of its scripts, writes nothing, and keeps no owners, devices
// and special permissions.
func Unpack(data []byte) (Deb, error) {
	var deb Deb
	parts := map[string]bool{}
	archive := ar.NewReader(bytes.NewReader(data))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Deb{}, fmt.Errorf("read the ar archive: %w", err)
		}
		name := strings.TrimSuffix(header.Name, "/")
		part, _, _ := strings.Cut(name, ".")
		if part != "control" && part != "data" {
			continue
		}
		parts[part] = true
		files, err := readTar(name, archive)
		if err != nil {
			return Deb{}, fmt.Errorf("read %s: %w", name, err)
		}
		if part == "data" {
			deb.Files = files
			continue
		}
		for _, file := range files {
			if file.Path == "control" {
				deb.Control = file.Data
			}
		}
	}
	if !parts["control"] || !parts["data"] || len(deb.Control) == 0 {
		return Deb{}, errors.New("not a Debian package: it has no control file or no data")
	}
	return deb, nil
}

func decompress(name string, r io.Reader) (io.Reader, error) {
	switch path.Ext(name) {
	case ".tar":
		return r, nil
	case ".gz":
		return gzip.NewReader(r)
	case ".xz":
		return xz.NewReader(r)
	case ".zst":
		decoder, err := zstd.NewReader(r)
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("unknown compression; want .tar, .gz, .xz or .zst")
}

func readTar(name string, r io.Reader) ([]File, error) {
	plain, err := decompress(name, r)
	if err != nil {
		return nil, err
	}
	var files []File
	index := map[string]int{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		file := File{Path: path.Clean(header.Name), Mode: header.FileInfo().Mode().Perm()}
		if !filepath.IsLocal(file.Path) {
			return nil, fmt.Errorf("the path %q leads out of the package", header.Name)
		}
		switch header.Typeflag {
		case tar.TypeReg:
			if file.Data, err = io.ReadAll(archive); err != nil {
				return nil, err
			}
		case tar.TypeSymlink:
			file.Link = header.Linkname
		case tar.TypeLink:
			target, ok := index[path.Clean(header.Linkname)]
			if !ok {
				return nil, fmt.Errorf("%s is a hard link to %q, which does not come before it", file.Path, header.Linkname)
			}
			file.Mode, file.Data, file.Link = files[target].Mode, files[target].Data, files[target].Link
		default:
			continue // folders are made for the files in them; no package of ours has devices
		}
		index[file.Path] = len(files)
		files = append(files, file)
	}
}
