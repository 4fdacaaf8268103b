package release

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ulikunitz/xz"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newKey(t *testing.T) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("archive", "", "archive@example.com", nil)
	must(t, err)
	return key
}

func sign(t *testing.T, key *openpgp.Entity, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := clearsign.Encode(&out, key.PrivateKey, nil)
	must(t, err)
	_, err = w.Write([]byte(text))
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

func TestTheKeysAreThoseOfDebian12(t *testing.T) {
	keys, err := Keys()
	must(t, err)
	var got []string
	for _, key := range keys {
		got = append(got, fmt.Sprintf("%X", key.PrimaryKey.Fingerprint))
	}
	slices.Sort(got)
	// From https://ftp-master.debian.org/keys.html.
	want := []string{"05AB90340C0C5E797F44A8C8254CF3B5AEC0A8F0", "4D64FEC119C2029067D6E791F8D2585B8783D481",
		"B8B80B5B623EAB6AD8775C45B7C5D7D6350947F8"}
	if !slices.Equal(got, want) {
		t.Errorf("got the fingerprints %v, want %v", got, want)
	}
}

func TestOnlyWhatIsSignedByAKnownKeyIsAccepted(t *testing.T) {
	key, other := newKey(t), newKey(t)
	const text = "Codename: bookworm\nSHA256:\n abc 12 main/binary-amd64/Packages.xz\n"
	signed := sign(t, key, text)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"signed":                      {signed, ""},
		"signed by another key":       {sign(t, other, text), "not signed by a known key"},
		"not signed":                  {[]byte(text), "no signed text"},
		"changed after it was signed": {bytes.Replace(signed, []byte("abc"), []byte("abd"), 1), "not signed by a known key"},
		"signed, and without files":   {sign(t, key, "Codename: bookworm\n"), "lists no file"},
		"signed, and with a bad line": {sign(t, key, "SHA256:\n abc main\n"), `"abc main"`},
		"signed, and with a bad size": {sign(t, key, "SHA256:\n abc big main\n"), `"abc big main"`},
		"signed, and not a paragraph": {sign(t, key, "hello\n"), "Name: value"},
		"signed, and two paragraphs":  {sign(t, key, text+"\n"+text), "2 paragraphs"},
		"signed, with text before it": {append([]byte("SHA256:\n evil 1 main/binary-amd64/Packages.xz\n"), signed...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := verifyRelease(c.file, openpgp.EntityList{key})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got the error %v, want one with %q", err, c.want)
				}
				return
			}
			must(t, err)
			if want := (sum{12, "abc"}); got.files["main/binary-amd64/Packages.xz"] != want || got.codename != "bookworm" {
				t.Errorf("got %+v, want bookworm with %+v", got, want)
			}
		})
	}
}

// entry is a paragraph of a Packages file.
func entry(name, version, section, depends string) string {
	return fmt.Sprintf("Package: %s\nVersion: %s\nSection: %s\nDepends: %s\nFilename: pool/main/%s_%s_amd64.deb\nSize: 1\nSHA256: %064x\n\n",
		name, version, section, depends, name, version, 1)
}

// mirror serves archives whose package indexes have that text, signed by the key.
func mirror(t *testing.T, key *openpgp.Entity, indexes map[string]string) (string, map[string][]byte) {
	t.Helper()
	files := map[string][]byte{}
	for _, a := range debian.Archives {
		var packed bytes.Buffer
		w, err := xz.NewWriter(&packed)
		must(t, err)
		_, err = w.Write([]byte(indexes[a.Name]))
		must(t, err)
		must(t, w.Close())
		base := "/" + a.Name + "/dists/" + a.Suite + "/"
		files[base+"main/binary-amd64/Packages.xz"] = packed.Bytes()
		files[base+"InRelease"] = sign(t, key,
			fmt.Sprintf("Codename: %s\nSHA256:\n %x %d main/binary-amd64/Packages.xz\n", a.Suite, sha256.Sum256(packed.Bytes()),
				packed.Len()))
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	}))
	t.Cleanup(s.Close)
	return s.URL, files
}

func candidates(t *testing.T, url string, key *openpgp.Entity, names ...string) (debian.Lock, error) {
	t.Helper()
	from := debian.Fetcher{Mirror: url, Client: http.DefaultClient}
	return Candidates(t.Context(), from, openpgp.EntityList{key}, Wanted{names, []string{"amd64"}},
		time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC))
}

func TestTheNewestVersionsOfPackagesAndLibrariesAreChosen(t *testing.T) {
	key := newKey(t)
	url, _ := mirror(t, key, map[string]string{
		"debian": entry("mount", "2.38-5", "admin", "libmount1 (>= 2.38), perl:any, awk | mawk, ") +
			entry("libmount1", "2.38-5", "libs", "libc6") + entry("libc6", "2.36-9+deb12u9", "libs", "") +
			entry("perl", "5", "perl", "libperl") + entry("libperl", "5", "libs", "") + entry("unasked", "1", "libs", ""),
		"debian-security": entry("libc6", "2.36-9+deb12u10", "libs", "") + entry("libmount1", "2.38-5~bpo1", "libs", ""),
	})
	lock, err := candidates(t, url, key, "mount")
	must(t, err)
	var got []string
	for _, p := range lock.Packages["amd64"] {
		got = append(got, p.Name+" "+p.Version+" "+p.Archive)
	}
	want := []string{"libc6 2.36-9+deb12u10 debian-security", "libmount1 2.38-5 debian", "mount 2.38-5 debian"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if lock.Taken != "20261123T010203Z" {
		t.Errorf("got the time %q, want 20261123T010203Z", lock.Taken)
	}
	text, err := lock.Marshal()
	must(t, err)
	if _, err := debian.ParseLock(text); err != nil {
		t.Errorf("the lock that was written is refused: %v", err)
	}
}

func TestAReleaseThatCannotBeTrustedOrReadIsAnErrorThatSaysWhy(t *testing.T) {
	key := newKey(t)
	const index = "/debian/dists/bookworm/main/binary-amd64/Packages.xz"
	for name, c := range map[string]struct {
		change func(files map[string][]byte)
		asked  string
		want   string
	}{
		"an index that is not the signed one": {func(files map[string][]byte) { files[index][20] ^= 1 }, "mount",
			"as InRelease says"},
		"an index that is not there": {func(files map[string][]byte) { delete(files, index) }, "mount", "404"},
		"a release of another suite": {func(files map[string][]byte) {
			files["/debian/dists/bookworm/InRelease"] = files["/debian-security/dists/bookworm-security/InRelease"]
		}, "mount", `want "bookworm"`},
		"a release that lists no such index": {func(files map[string][]byte) {
			files["/debian/dists/bookworm/InRelease"] = sign(t, key,
				"Codename: bookworm\nSHA256:\n abc 1 main/source/Sources.xz\n")
		}, "mount", "does not list main/binary-amd64/Packages.xz"},
		"a package that there is not": {func(map[string][]byte) {}, "mound", "no package mound"},
	} {
		t.Run(name, func(t *testing.T) {
			url, files := mirror(t, key, map[string]string{"debian": entry("mount", "1", "admin", "")})
			c.change(files)
			_, err := candidates(t, url, key, c.asked)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want one with %q", err, c.want)
			}
		})
	}
}
