package debian

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func example(content string) Package {
	digest := sha256.Sum256([]byte(content))
	return Package{
		Name:    "dash",
		Version: "0.5.12-2",
		Source:  "dash",
		Archive: "debian",
		Path:    "pool/main/d/dash/dash_0.5.12-2_amd64.deb",
		Size:    int64(len(content)),
		SHA256:  hex.EncodeToString(digest[:]),
	}
}

func TestALockIsReadAsItWasWritten(t *testing.T) {
	lock := Lock{Taken: "20261121T021046Z", Packages: map[string][]Package{"amd64": {example("x")}}}
	text, err := lock.Marshal()
	must(t, err)
	got, err := ParseLock(text)
	must(t, err)
	if !slices.Equal(got.Packages["amd64"], lock.Packages["amd64"]) || got.Taken != lock.Taken {
		t.Errorf("got %+v, want %+v", got, lock)
	}
}

func TestABadLockIsRefusedWithAllItsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Lock)
		want   []string
	}{
		"no time":         {func(l *Lock) { l.Taken = "yesterday" }, []string{"taken", `"yesterday"`}},
		"no architecture": {func(l *Lock) { l.Packages = nil }, []string{"at least one architecture"}},
		"no packages":     {func(l *Lock) { l.Packages["amd64"] = nil }, []string{"packages.amd64"}},
		"a package twice": {func(l *Lock) { l.Packages["amd64"] = append(l.Packages["amd64"], example("y")) },
			[]string{"packages.amd64[1]", "once"}},
		"two faults of one": {func(l *Lock) { l.Packages["amd64"][0].SHA256, l.Packages["amd64"][0].Version = "0", "" },
			[]string{"sha256", "version"}},
		"no name": {func(l *Lock) { l.Packages["amd64"][0].Name = "" }, []string{"name"}},
		"no size": {func(l *Lock) { l.Packages["amd64"][0].Size = 0 }, []string{"size: 0"}},
		"an unknown archive": {func(l *Lock) { l.Packages["amd64"][0].Archive = "ubuntu" },
			[]string{`archive: "ubuntu"`, "debian-security"}},
		"a path out of the pool": {func(l *Lock) { l.Packages["amd64"][0].Path = "pool/../../x.deb" }, []string{"path", "pool/"}},
	} {
		t.Run(name, func(t *testing.T) {
			lock := Lock{Taken: "20261121T021046Z", Packages: map[string][]Package{"amd64": {example("x")}}}
			c.change(&lock)
			text, err := lock.Marshal()
			must(t, err)
			_, err = ParseLock(text)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %v, want one with %q", err, want)
				}
			}
		})
	}
	if _, err := ParseLock([]byte("taken: 20261121T021046Z\npackage: {}\n")); err == nil ||
		!strings.Contains(err.Error(), "package") {
		t.Errorf("got the error %v for an unknown field, want one that names it", err)
	}
}

// server serves the files by path and counts the requests.
func server(t *testing.T, files map[string]string) (url string, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.Path)
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(content))
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestAPackageIsFetchedFromCacheMirrorOrArchive(t *testing.T) {
	p := example("the package")
	const onMirror, onSnapshot = "/debian/pool/main/d/dash/dash_0.5.12-2_amd64.deb", "/debian/20261121T021046Z/pool/main/d/dash/dash_0.5.12-2_amd64.deb"
	for name, c := range map[string]struct {
		mirror, snapshot map[string]string
		// asked are the numbers of requests to the mirror and to the archive of old packages.
		asked [2]int
	}{
		"the mirror has it":           {map[string]string{onMirror: "the package"}, nil, [2]int{1, 0}},
		"the mirror has it no longer": {nil, map[string]string{onSnapshot: "the package"}, [2]int{1, 1}},
		"the mirror has something else": {map[string]string{onMirror: "the peckage"},
			map[string]string{onSnapshot: "the package"}, [2]int{1, 1}},
		"the mirror has something that is long": {map[string]string{onMirror: "the package, and more"},
			map[string]string{onSnapshot: "the package"}, [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			mirror, askedMirror := server(t, c.mirror)
			snapshot, askedSnapshot := server(t, c.snapshot)
			from := Fetcher{Mirror: mirror + "/", Snapshot: snapshot, Cache: t.TempDir(), Client: http.DefaultClient}
			for range 2 {
				data, err := from.Fetch(t.Context(), p, "20261121T021046Z")
				must(t, err)
				if string(data) != "the package" {
					t.Errorf("got %q, want the package", data)
				}
			}
			if got := [2]int{len(*askedMirror), len(*askedSnapshot)}; got != c.asked {
				t.Errorf("got %v requests for two fetches, want %v: %v %v", got, c.asked, *askedMirror, *askedSnapshot)
			}
		})
	}
}

func TestAPackageThatNoServerHasIsAnError(t *testing.T) {
	mirror, _ := server(t, nil)
	snapshot, _ := server(t, map[string]string{"/debian/T/pool/main/d/dash/dash_0.5.12-2_amd64.deb": "another"})
	_, err := Fetcher{
		Mirror:   mirror,
		Snapshot: snapshot,
		Cache:    t.TempDir(),
		Client:   http.DefaultClient,
	}.Fetch(t.Context(), example("x"), "T")
	for _, want := range []string{"dash 0.5.12-2", mirror, snapshot, "404", "SHA-256", "DEBIAN_MIRROR", "make image-lock"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
}

func TestThePackagesOfAllArchitecturesAreFetchedAhead(t *testing.T) {
	packages, files := map[string][]Package{}, fstest.MapFS{}
	for _, architecture := range []string{"amd64", "arm64"} {
		for i := range 9 {
			p := example(fmt.Sprint(architecture, i))
			p.Path = fmt.Sprintf("pool/%s/%d.deb", architecture, i)
			packages[architecture] = append(packages[architecture], p)
			files["debian/"+p.Path] = &fstest.MapFile{Data: []byte(fmt.Sprint(architecture, i))}
		}
	}
	lock := Lock{Taken: "T", Packages: packages}
	mirror := httptest.NewServer(http.FileServerFS(files))
	from := Fetcher{Mirror: mirror.URL, Snapshot: mirror.URL, Cache: t.TempDir(), Client: http.DefaultClient}
	must(t, from.FetchAll(t.Context(), lock))
	mirror.Close()
	for architecture := range packages {
		for _, p := range packages[architecture] {
			if _, err := from.Fetch(t.Context(), p, lock.Taken); err != nil {
				t.Errorf("%s was not kept: %v", p.Path, err)
			}
		}
	}
	from.Cache = t.TempDir()
	if err := from.FetchAll(t.Context(), lock); err == nil || !strings.Contains(err.Error(), "DEBIAN_MIRROR") {
		t.Errorf("got the error %v without a mirror, want one with the setting", err)
	}
}
