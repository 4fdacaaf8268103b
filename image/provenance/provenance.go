// Package provenance says how an image or a chart was built, and from what: an in-toto statement
// with the predicate of SLSA (https://slsa.dev/spec/v1.0/provenance).
package provenance

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	predicatev1 "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statementv1 "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/azuredisk-csi/azuredisk/image/built"
	"github.com/azuredisk-csi/azuredisk/image/debian"
)

// The types of an attestation, of what is in it, and of what that says.
const (
	PayloadType   = "application/vnd.in-toto+json"
	PredicateType = "https://slsa.dev/provenance/v1"
)

// File is where the provenance of an OCI layout is kept: beside it.
func File(layout string) string { return strings.TrimRight(layout, "/") + ".provenance.json" }

// Build is how something was built.
type Build struct {
	// Builder is the URI of who built, and Invocation that of the run, if it has one.
	Builder, Invocation string
	// Home is the URL of the repository, and Revision the commit.
	Home, Revision string
	// Parameters are what the caller chose: the target of the Makefile, and its variables.
	Parameters map[string]string
	// Programs are the Go programs in it, and Packages the packages of Debian.
	Programs [][]byte
	Packages []debian.Package
}

// Predicate returns the predicate as JSON. The same build gives the same bytes.
func (b Build) Predicate() ([]byte, error) {
	parameters := map[string]any{}
	for name, value := range b.Parameters {
		parameters[name] = value
	}
	external, err := structpb.NewStruct(parameters)
	if err != nil {
		return nil, err
	}
	inputs, err := b.inputs()
	if err != nil {
		return nil, err
	}
	predicate := &predicatev1.Provenance{
		BuildDefinition: &predicatev1.BuildDefinition{
			BuildType:            b.Home + "/blob/" + b.Revision + "/docs/guides/images.md#provenance",
			ExternalParameters:   external,
			ResolvedDependencies: inputs,
		},
		RunDetails: &predicatev1.RunDetails{
			Builder:  &predicatev1.Builder{Id: b.Builder},
			Metadata: &predicatev1.BuildMetadata{InvocationId: b.Invocation},
		},
	}
	if err := predicate.Validate(); err != nil {
		return nil, fmt.Errorf("describe the build: %w", err)
	}
	return encode(predicate)
}

// inputs are the commit, Go, its modules and Debian's packages, in this order.
func (b Build) inputs() ([]*statementv1.ResourceDescriptor, error) {
	inputs := []*statementv1.ResourceDescriptor{{Uri: "git+" + b.Home, Digest: map[string]string{"gitCommit": b.Revision}}}
	found := map[string]*statementv1.ResourceDescriptor{}
	for _, program := range b.Programs {
		goVersion, modules, err := built.Modules(program)
		if err != nil {
			return nil, err
		}
		add := func(uri string, digest map[string]string) {
			found[uri] = &statementv1.ResourceDescriptor{Uri: uri, Digest: digest}
		}
		add("pkg:golang/stdlib@"+strings.TrimPrefix(goVersion, "go"), nil)
		for _, dep := range modules {
			// The sum of a module, as go.sum has it, is a hash of all its files.
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(dep.Sum, "h1:"))
			if err != nil {
				return nil, fmt.Errorf("read the sum of the module %s: %w", dep.Path, err)
			}
			add("pkg:golang/"+dep.Path+"@"+dep.Version, map[string]string{"dirHash": hex.EncodeToString(sum)})
		}
	}
	for _, p := range b.Packages {
		found[p.Path] = &statementv1.ResourceDescriptor{Name: p.Path, Digest: map[string]string{"sha256": p.SHA256}}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		inputs = append(inputs, found[name])
	}
	return inputs, nil
}

// Statement returns the statement that what has this name and SHA-256 was built as the predicate
// says.
func Statement(name, sha256 string, predicate []byte) ([]byte, error) {
	content := &structpb.Struct{}
	if err := protojson.Unmarshal(predicate, content); err != nil {
		return nil, fmt.Errorf("read the provenance: %w", err)
	}
	statement := &statementv1.Statement{
		Type:          statementv1.StatementTypeUri,
		Subject:       []*statementv1.ResourceDescriptor{{Name: name, Digest: map[string]string{"sha256": sha256}}},
		PredicateType: PredicateType,
		Predicate:     content,
	}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("state the provenance of %s: %w", name, err)
	}
	return encode(statement)
}

// encode removes the spaces that protojson adds at random.
func encode(message proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}
