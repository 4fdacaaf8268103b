package provenance

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	predicatev1 "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statementv1 "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const commit = "0123456789abcdef0123456789abcdef01234567"

func build(t *testing.T) Build {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", file, "../licence/testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	must(t, err)
	return Build{
		Builder:    "https://example.com/builder",
		Invocation: "https://example.com/runs/1",
		Home:       "https://example.com/azuredisk",
		Revision:   commit,
		Parameters: map[string]string{"target": "image", "VERSION": "1.2.3"},
		Programs:   [][]byte{program},
		Packages:   []debian.Package{{Name: "mount", Path: "pool/mount_amd64.deb", SHA256: strings.Repeat("ab", 32)}},
	}
}

func TestThePredicateNamesTheCommitAndAllInputs(t *testing.T) {
	b := build(t)
	text, err := b.Predicate()
	must(t, err)
	again, err := b.Predicate()
	must(t, err)
	if !bytes.Equal(text, again) {
		t.Error("two predicates of one build differ")
	}
	var predicate predicatev1.Provenance
	must(t, protojson.Unmarshal(text, &predicate))
	must(t, predicate.Validate())
	digests := map[string]string{}
	for _, input := range predicate.GetBuildDefinition().GetResolvedDependencies() {
		for algorithm, digest := range input.GetDigest() {
			digests[input.GetUri()+input.GetName()] = algorithm + ":" + digest
		}
	}
	sum := ""
	goSum, err := os.ReadFile("../go.sum")
	must(t, err)
	for line := range strings.Lines(string(goSum)) {
		if fields := strings.Fields(line); fields[0] == "golang.org/x/sync" && !strings.HasSuffix(fields[1], "/go.mod") {
			sum = fields[1]
		}
	}
	for name, want := range map[string]string{
		"git+https://example.com/azuredisk":   "gitCommit:" + commit,
		"pool/mount_amd64.deb":                "sha256:abab",
		"pkg:golang/golang.org/x/sync@" + sum: "dirHash:",
	} {
		if !strings.HasPrefix(digests[name], want) {
			t.Errorf("%s: got the digest %q, want %s…", name, digests[name], want)
		}
	}
	if got := predicate.GetRunDetails(); got.GetBuilder().GetId() != b.Builder ||
		got.GetMetadata().GetInvocationId() != b.Invocation {
		t.Errorf("got the run %v, want the builder %s and the run %s", got, b.Builder, b.Invocation)
	}
}

func TestABuildWithoutACommitOrABuilderHasNoProvenance(t *testing.T) {
	for name, change := range map[string]func(*Build){
		"no commit":     func(b *Build) { b.Revision = "" },
		"no builder":    func(b *Build) { b.Builder = "" },
		"no parameters": func(b *Build) { b.Parameters = nil },
		"no Go program": func(b *Build) { b.Programs = [][]byte{[]byte("#!/bin/sh\n")} },
	} {
		t.Run(name, func(t *testing.T) {
			b := build(t)
			change(&b)
			if text, err := b.Predicate(); err == nil {
				t.Errorf("got the predicate %s, want an error", text)
			}
		})
	}
}

func TestTheStatementIsAboutTheDigest(t *testing.T) {
	predicate, err := build(t).Predicate()
	must(t, err)
	digest := strings.Repeat("cd", 32)
	text, err := Statement("registry.example.com/azuredisk", digest, predicate)
	must(t, err)
	var statement statementv1.Statement
	must(t, protojson.Unmarshal(text, &statement))
	must(t, statement.Validate())
	if got := statement.GetSubject()[0].GetDigest()["sha256"]; got != digest || statement.GetPredicateType() != PredicateType {
		t.Errorf("got the digest %s and the type %s, want %s and %s", got, statement.GetPredicateType(), digest, PredicateType)
	}
	if _, err := Statement("a", "not a digest", predicate); err == nil {
		t.Error("a digest that is none: got no error")
	}
}
