package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// member is a file of an ar archive.
type member struct{ name, content string }

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	w := ar.NewWriter(&out)
	must(t, w.WriteGlobalHeader())
	for _, m := range members {
		must(t, w.WriteHeader(&ar.Header{Name: m.name, Size: int64(len(m.content)), Mode: 0o644}))
		_, err := w.Write([]byte(m.content))
		must(t, err)
	}
	return out.Bytes()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tarOf(t testing.TB, headers ...tar.Header) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, header := range headers {
		content := "content of " + header.Name
		if header.Typeflag == tar.TypeReg {
			header.Size = int64(len(content))
		}
		must(t, w.WriteHeader(&header))
		if header.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(content))
			must(t, err)
		}
	}
	must(t, w.Close())
	return out.String()
}

func compressed(t testing.TB, plain string, open func(io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	var out bytes.Buffer
	w, err := open(&out)
	must(t, err)
	_, err = io.WriteString(w, plain)
	must(t, err)
	must(t, w.Close())
	return out.String()
}

func openXZ(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) }

func TestAPackageIsUnpackedWithEachCompression(t *testing.T) {
	control := tarOf(t, tar.Header{Name: "./control", Typeflag: tar.TypeReg}, tar.Header{
		Name:     "./postinst",
		Typeflag: tar.TypeReg,
		Mode:     0o755,
	})
	data := tarOf(t,
		tar.Header{Name: "./usr/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./usr/bin/mount", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 7},
		tar.Header{Name: "./usr/bin/again", Typeflag: tar.TypeLink, Linkname: "./usr/bin/mount"},
		tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar, Mode: 0o666},
		tar.Header{Name: "./sbin/link", Typeflag: tar.TypeSymlink, Linkname: "../usr/bin/mount", Mode: 0o777})
	want := Deb{Control: []byte("content of ./control"), Files: []File{
		{Path: "usr/bin/mount", Mode: 0o755, Data: []byte("content of ./usr/bin/mount")},
		{Path: "usr/bin/again", Mode: 0o755, Data: []byte("content of ./usr/bin/mount")},
		{Path: "sbin/link", Mode: 0o777, Link: "../usr/bin/mount"},
	}}
	for suffix, open := range map[string]func(io.Writer) (io.WriteCloser, error){
		".xz":  openXZ,
		".gz":  func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		".zst": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
	} {
		t.Run(suffix, func(t *testing.T) {
			got, err := Unpack(archive(t, member{"debian-binary", "2.0\n"},
				member{"control.tar" + suffix, compressed(t, control, open)},
				member{"data.tar" + suffix, compressed(t, data, open)}))
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the unpacked package differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestABrokenPackageIsRefused(t *testing.T) {
	control := member{"control.tar", tarOf(t, tar.Header{Name: "./control", Typeflag: tar.TypeReg})}
	data := func(headers ...tar.Header) member { return member{"data.tar", tarOf(t, headers...)} }
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"not an archive":         {[]byte("<html>please sign in</html>"), "ar archive"},
		"nothing":                {nil, "no control file or no data"},
		"no data":                {archive(t, control), "no control file or no data"},
		"no control file":        {archive(t, data()), "no control file or no data"},
		"an unknown compression": {archive(t, control, member{"data.tar.lzma", "x"}), "unknown compression"},
		"compressed data that are cut off": {archive(t, control,
			member{"data.tar.xz", compressed(t, data().content, openXZ)[:40]}), "data.tar.xz"},
		"a path out of the package": {archive(t, control, data(tar.Header{
			Name:     "../etc/passwd",
			Typeflag: tar.TypeReg,
		})), `"../etc/passwd" leads out`},
		"a hard link to what is not there": {archive(t, control, data(tar.Header{
			Name:     "a",
			Typeflag: tar.TypeLink,
			Linkname: "b",
		})), `hard link to "b"`},
		"an absolute path, which is out as well": {
			archive(t, control, data(tar.Header{Name: "/etc/passwd", Typeflag: tar.TypeReg})), "leads out"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Unpack(c.content)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want one with %q", err, c.want)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, member{"control.tar", tarOf(f, tar.Header{
		Name:     "./control",
		Typeflag: tar.TypeReg,
	})}, member{"data.tar", tarOf(f)}))
	f.Add([]byte("!<arch>\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		deb, err := Unpack(data)
		if err == nil && len(deb.Control) == 0 {
			t.Error("a package without a control file was accepted")
		}
	})
}
