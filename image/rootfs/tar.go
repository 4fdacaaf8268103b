package rootfs

import (
	"archive/tar"
	"io"
	"path"
	"slices"
	"time"
)

// epoch is the time of all files, so that equal content has equal digests.
var epoch = time.Unix(0, 0).UTC()

// folders are made even if nothing is in them: the runtime mounts something there, or programs
// write there.
var folders = map[string]int64{"dev": 0o755, "proc": 0o755, "run": 0o755, "sys": 0o755, "root": 0o700, "tmp": 0o1777}

// WriteTar writes the tree in order of paths. Everything belongs to root. The same tree gives the
// same bytes. If complete is false, the tar has only the files and the folders that they are in.
func (t Tree) WriteTar(to io.Writer, complete bool) error {
	modes := map[string]int64{}
	if complete {
		for name, mode := range folders {
			modes[name] = mode
		}
	}
	names := []string{}
	for name := range t {
		names = append(names, name)
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := modes[dir]; !ok {
				modes[dir] = 0o755
			}
		}
	}
	for dir := range modes {
		names = append(names, dir)
	}
	slices.Sort(names)
	w := tar.NewWriter(to)
	for _, name := range names {
		if err := t.writeEntry(w, name, modes[name]); err != nil {
			return err
		}
	}
	return w.Close()
}

func (t Tree) writeEntry(w *tar.Writer, name string, folderMode int64) error {
	file, ok := t[name]
	header := &tar.Header{
		Name:    name,
		ModTime: epoch,
		Format:  tar.FormatUSTAR,
	}
	switch {
	case !ok:
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, name+"/", folderMode
	case file.Link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, file.Link, 0o777
	default:
		header.Typeflag, header.Size, header.Mode = tar.TypeReg, int64(len(file.Data)), int64(file.Mode.Perm())
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(file.Data)
	return err
}
