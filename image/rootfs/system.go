package rootfs

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

// NonRoot is the user of the image that is not root.
const NonRoot = "65532"

// AddSystem adds what maintainer scripts make on an installed Debian: the users, the bundle of the
// certificates, and the record of the packages, from which scanners learn what is installed. It
// also adds the licence of each package. from has all files of the packages, and control their
// control files by name.
func (t Tree) AddSystem(from Tree, control map[string][]byte) error {
	t.Put("etc/passwd", 0o644, "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:"+NonRoot+":"+NonRoot+
		":nonroot:/nonexistent:/sbin/nologin\n")
	t.Put("etc/group", 0o644, "root:x:0:\nnonroot:x:"+NonRoot+":\n")
	// The filesystem tools look there for what is mounted.
	t["etc/mtab"] = File{File: debian.File{
		Path: "etc/mtab",
		Mode: 0o777,
		Link: "../proc/self/mounts",
	}}
	bundle := certificates(from)
	if bundle == "" {
		return errors.New("the packages have no certificate below /usr/share/ca-certificates")
	}
	const store = "etc/ssl/certs/ca-certificates.crt"
	t[store] = File{File: debian.File{
		Path: store,
		Mode: 0o644,
		Data: []byte(bundle),
	}, Package: "ca-certificates"}
	for _, name := range t.Packages() {
		passed, err := from.follow("usr/share/doc/" + name + "/copyright")
		if err != nil {
			return err
		}
		for _, at := range passed {
			t[at] = from[at]
		}
		t.Put("var/lib/dpkg/status.d/"+name, 0o644, status(control[name]))
	}
	t.AddMergedLinks()
	return nil
}

// AddMergedLinks adds the links from /bin, /lib and so on to the folders below /usr.
func (t Tree) AddMergedLinks() {
	for _, name := range merged {
		if t.has("usr/" + name + "/") {
			t[name] = File{File: debian.File{
				Path: name,
				Mode: 0o777,
				Link: "usr/" + name,
			}}
		}
	}
}

func (t Tree) has(prefix string) bool {
	for name := range t {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// certificates are all certificates in one text, in order of their paths.
func certificates(from Tree) string {
	var names []string
	for name := range from {
		if strings.HasPrefix(name, "usr/share/ca-certificates/") && path.Ext(name) == ".crt" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		text.Write(bytes.TrimSpace(from[name].Data))
		text.WriteString("\n")
	}
	return text.String()
}

// status is a control file with the state that dpkg would record.
func status(control []byte) string {
	first, rest, _ := strings.Cut(string(bytes.TrimSpace(control)), "\n")
	return first + "\nStatus: install ok installed\n" + rest + "\n"
}
