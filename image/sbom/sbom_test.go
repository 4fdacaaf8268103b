package sbom

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

func subject(t *testing.T) Subject {
	t.Helper()
	// A test does not record its modules.
	file := filepath.Join(t.TempDir(), "image")
	if out, err := exec.Command("go", "build", "-o", file, "../cmd/image").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Subject{
		Name:         "azuredisk",
		Version:      "1.2.3",
		Architecture: "arm64",
		Home:         "https://example.com",
		Created:      time.Unix(1, 0),
		Program:      program,
		Packages: []debian.Package{
			{Name: "libstdc++6", Version: "12.2.0-14+deb12u1", Source: "gcc-12", Path: "pool/l_arm64.deb", SHA256: "ab"},
			{Name: "ca-certificates", Version: "1:2", Source: "ca-certificates", Path: "pool/c_all.deb", SHA256: "cd"},
		},
	}
}

func TestTheDocumentNamesThePackagesAndTheModules(t *testing.T) {
	text, err := Document(subject(t))
	if err != nil {
		t.Fatal(err)
	}
	var doc v2_3.Document
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatalf("the document is not SPDX 2.3: %v", err)
	}
	purls, ids := map[string]string{}, map[string]bool{}
	for _, p := range doc.Packages {
		if ids[string(p.PackageSPDXIdentifier)] {
			t.Errorf("the identifier %s is there twice", p.PackageSPDXIdentifier)
		}
		ids[string(p.PackageSPDXIdentifier)] = true
		for _, ref := range p.PackageExternalReferences {
			purls[p.PackageName] = ref.Locator
		}
	}
	for name, want := range map[string]string{
		"libstdc++6":                   "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=arm64&distro=debian-12&upstream=gcc-12",
		"ca-certificates":              "pkg:deb/debian/ca-certificates@1:2?arch=all&distro=debian-12",
		"github.com/spdx/tools-golang": "pkg:golang/github.com/spdx/tools-golang@v",
		"stdlib":                       "pkg:golang/stdlib@1.",
	} {
		if !strings.HasPrefix(purls[name], want) {
			t.Errorf("%s: got the package URL %q, want %q", name, purls[name], want)
		}
	}
	described := map[string]bool{}
	for _, r := range doc.Relationships {
		described[string(r.RefB.ElementRefID)] = true
	}
	for id := range ids {
		if !described[id] {
			t.Errorf("no relationship leads to %s", id)
		}
	}
}

func TestTheDocumentIsTheSameEachTime(t *testing.T) {
	s := subject(t)
	first, err := Document(s)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Document(s)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two documents of the same image differ")
	}
}

func TestWhatIsNoGoProgramIsRefused(t *testing.T) {
	if _, err := Document(Subject{Program: []byte("#!/bin/sh\n")}); err == nil ||
		!strings.Contains(err.Error(), "modules of the program") {
		t.Errorf("got the error %v, want one about its modules", err)
	}
}

func TestIdentifiersOfDifferentNamesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a-b", "a/b", "a.b", "a+b", "a--b", "a-2b-b", "ab"} {
		id := identifier(name)
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q have the same identifier %q", name, other, id)
		}
		seen[id] = name
	}
}
