package registry

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	predicatev1 "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statementv1 "github.com/in-toto/attestation/go/v1"

	"github.com/azuredisk-csi/azuredisk/image/provenance"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newLayout writes a layout with an index of the tag 1.2.3 and an artifact that refers to it.
func newLayout(t *testing.T) (dir string, index v1.ImageIndex) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "layout")
	to, err := layout.Write(dir, empty.Index)
	must(t, err)
	index, err = random.Index(100, 1, 2)
	must(t, err)
	must(t, to.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: "1.2.3"})))
	subject, err := partial.Descriptor(index)
	must(t, err)
	artifact, err := mutate.AppendLayers(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/spdx+json"),
		static.NewLayer([]byte("{}"), "application/spdx+json"))
	must(t, err)
	must(t, to.AppendImage(mutate.Subject(artifact, *subject).(v1.Image)))
	predicate, err := provenance.Build{
		Builder:    "https://example.com/builder",
		Home:       "https://example.com/azuredisk",
		Revision:   strings.Repeat("ab", 20),
		Parameters: map[string]string{"target": "image"},
	}.Predicate()
	must(t, err)
	must(t, os.WriteFile(provenance.File(dir), predicate, 0o600))
	return dir, index
}

// serve starts a registry, behind the handler if there is one, and returns the repository in it.
func serve(t *testing.T, instead http.Handler) string {
	t.Helper()
	// No credentials of the machine.
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
	if instead != nil {
		handler = instead
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/team/azuredisk"
}

func TestEverythingOfALayoutIsPushed(t *testing.T) {
	dir, index := newLayout(t)
	repository := serve(t, nil)
	want, err := index.Digest()
	must(t, err)
	for range 2 { // pushing again changes nothing
		pushed, err := Push(t.Context(), dir, repository)
		must(t, err)
		if len(pushed) != 1 || pushed[0].DigestStr() != want.String() {
			t.Fatalf("got %v, want the digest %s", pushed, want)
		}
	}
	tag, err := name.NewTag(repository + ":1.2.3")
	must(t, err)
	got, err := remote.Index(tag)
	must(t, err)
	must(t, validate.Index(got))
	referrers, err := remote.Referrers(tag.Digest(want.String()))
	must(t, err)
	list, err := referrers.IndexManifest()
	must(t, err)
	if len(list.Manifests) != 1 || list.Manifests[0].ArtifactType != "application/spdx+json" {
		t.Errorf("got the referrers %+v, want the bill of materials", list.Manifests)
	}
}

func TestWhyAPushFailsIsSaid(t *testing.T) {
	dir, _ := newLayout(t)
	refuse := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				w.WriteHeader(status)
			}
		})
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, c := range map[string]struct {
		dir, repository string
		want            []string
	}{
		"no credentials": {dir, serve(t, refuse(http.StatusUnauthorized)),
			[]string{"docker login", "az acr login", "127.0.0.1"}},
		"no right to write":  {dir, serve(t, refuse(http.StatusForbidden)), []string{"does not allow", "team/azuredisk"}},
		"no such repository": {dir, serve(t, refuse(http.StatusNotFound)), []string{"no repository team/azuredisk"}},
		"too many requests":  {dir, serve(t, refuse(http.StatusConflict)), []string{"answered 409"}},
		"no server": {dir, strings.TrimPrefix(closed.URL, "http://") + "/azuredisk",
			[]string{"is " + strings.TrimPrefix(closed.URL, "http://") + " a registry"}},
		"a bad name": {dir, "example.com/Azure Disk",
			[]string{`"example.com/Azure Disk"`, "registry.example.com/azuredisk"}},
		"no image is made yet": {filepath.Join(dir, "none"), "example.com/azuredisk", []string{"make image"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Push(t.Context(), c.dir, c.repository)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %v, want one with %q", err, want)
				}
			}
		})
	}
}

// newKey writes a private key in cosign's format and returns the public one.
func newKey(t *testing.T, password string) (file string, public crypto.PublicKey) {
	t.Helper()
	private, publicPEM, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(),
		func(bool) ([]byte, error) { return []byte(password), nil })
	must(t, err)
	file = filepath.Join(t.TempDir(), "cosign.key")
	must(t, os.WriteFile(file, private, 0o600))
	public, err = cryptoutils.UnmarshalPEMToPublicKey(publicPEM)
	must(t, err)
	return file, public
}

// pushedAndKey pushes a layout, and makes the key that signs it.
func pushedAndKey(t *testing.T) (dir, repository string, pushed []name.Digest, signer signature.Signer,
	public crypto.PublicKey) {
	t.Helper()
	dir, _ = newLayout(t)
	repository = serve(t, nil)
	pushed, err := Push(t.Context(), dir, repository)
	must(t, err)
	file, public := newKey(t, "secret")
	signer, err = LoadKey(file, []byte("secret"))
	must(t, err)
	return dir, repository, pushed, signer, public
}

// attestationOf is where cosign looks for the attestation of an image.
func attestationOf(image name.Digest) name.Tag {
	return image.Context().Tag(strings.Replace(image.DigestStr(), ":", "-", 1) + ".att")
}

func TestASignatureIsWhereCosignLooksForItAndIsValid(t *testing.T) {
	dir, repository, pushed, signer, public := pushedAndKey(t)
	for range 2 {
		_, err := Sign(t.Context(), dir, repository, signer)
		must(t, err)
	}
	tag, err := name.NewTag(repository + ":" + strings.Replace(pushed[0].DigestStr(), ":", "-", 1) + ".sig")
	must(t, err)
	signatures, err := remote.Image(tag)
	must(t, err)
	manifest, err := signatures.Manifest()
	must(t, err)
	layers, err := signatures.Layers()
	must(t, err)
	if len(layers) != 2 {
		t.Fatalf("got %d signatures after signing twice, want 2", len(layers))
	}
	verifier, err := signature.LoadVerifier(public, crypto.SHA256)
	must(t, err)
	for i, layer := range layers {
		content, err := layer.Uncompressed()
		must(t, err)
		text, err := io.ReadAll(content)
		must(t, err)
		raw, err := base64.StdEncoding.DecodeString(manifest.Layers[i].Annotations[signatureAnnotation])
		must(t, err)
		must(t, verifier.VerifySignature(bytes.NewReader(raw), bytes.NewReader(text)))
		var signed payload.Cosign
		must(t, json.Unmarshal(text, &signed))
		if signed.Image.DigestStr() != pushed[0].DigestStr() || manifest.Layers[i].MediaType != simpleSigning {
			t.Errorf("signature %d: got %s of the type %s, want %s of %s", i, signed.Image.DigestStr(),
				manifest.Layers[i].MediaType, pushed[0].DigestStr(), simpleSigning)
		}
	}
}

// verifyAttestation does what `cosign verify-attestation --type slsaprovenance1` does, and returns
// the provenance. See IntotoSubjectClaimVerifier and AttestationToPayloadJSON of cosign.
func verifyAttestation(image name.Digest, key crypto.PublicKey) (*predicatev1.Provenance, error) {
	attestations, err := remote.Image(attestationOf(image))
	if err != nil {
		return nil, err
	}
	layers, err := attestations.Layers()
	if err != nil {
		return nil, err
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, layer := range layers {
		predicate, err := verifyEnvelope(layer, image, verifier)
		if err == nil {
			return predicate, nil
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(faults...)
}

func verifyEnvelope(layer v1.Layer, image name.Digest, verifier signature.Verifier) (*predicatev1.Provenance, error) {
	if kind, err := layer.MediaType(); err != nil || kind != "application/vnd.dsse.envelope.v1+json" {
		return nil, fmt.Errorf("a layer of the type %s: %w", kind, err)
	}
	content, err := layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	var text []byte
	expected := dsse.WithExpectedPayloadType("application/vnd.in-toto+json")
	err = dsse.WrapVerifier(verifier, expected, dsse.WithDecodedPayload(&text)).VerifySignature(content, nil)
	if err != nil {
		return nil, err
	}
	var statement statementv1.Statement
	if err := errors.Join(protojson.Unmarshal(text, &statement), statement.Validate()); err != nil {
		return nil, err
	}
	if got := "sha256:" + statement.GetSubject()[0].GetDigest()["sha256"]; got != image.DigestStr() {
		return nil, fmt.Errorf("a statement about %s", got)
	}
	if got := statement.GetPredicateType(); got != "https://slsa.dev/provenance/v1" {
		return nil, fmt.Errorf("a predicate of the type %s", got)
	}
	raw, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		return nil, err
	}
	predicate := &predicatev1.Provenance{}
	return predicate, errors.Join(protojson.Unmarshal(raw, predicate), predicate.Validate())
}

func TestTheProvenanceIsWhereCosignLooksForItAndIsValid(t *testing.T) {
	dir, repository, pushed, signer, public := pushedAndKey(t)
	if _, err := verifyAttestation(pushed[0], public); err == nil {
		t.Error("before it is signed: got a provenance")
	}
	_, err := Sign(t.Context(), dir, repository, signer)
	must(t, err)
	got, err := verifyAttestation(pushed[0], public)
	if err != nil || got.GetRunDetails().GetBuilder().GetId() != "https://example.com/builder" ||
		got.GetBuildDefinition().GetResolvedDependencies()[0].GetDigest()["gitCommit"] != strings.Repeat("ab", 20) {
		t.Errorf("got the provenance %v, %v; want the builder and the commit", got, err)
	}
	_, other := newKey(t, "")
	if _, err := verifyAttestation(pushed[0], other); err == nil {
		t.Error("with another key: got a provenance, want an error")
	}
	// The attestation of another image says nothing about this one.
	otherDir, _ := newLayout(t)
	otherPushed, err := Push(t.Context(), otherDir, repository)
	must(t, err)
	moved, err := remote.Image(attestationOf(pushed[0]))
	must(t, err)
	must(t, remote.Write(attestationOf(otherPushed[0]), moved))
	if _, err := verifyAttestation(otherPushed[0], public); err == nil || !strings.Contains(err.Error(), "a statement about") {
		t.Errorf("the attestation of another image: got the error %v, want one that says so", err)
	}
	must(t, os.Remove(provenance.File(dir)))
	if _, err := Sign(t.Context(), dir, repository, signer); err == nil || !strings.Contains(err.Error(), "made of a commit") {
		t.Errorf("without a provenance: got the error %v, want one that says so", err)
	}
}

func TestWhySigningFailsIsSaid(t *testing.T) {
	file, _ := newKey(t, "secret")
	if _, err := LoadKey(file, []byte("wrong")); err == nil || !strings.Contains(err.Error(), "COSIGN_PASSWORD") {
		t.Errorf("the wrong password: got the error %v, want one that names the setting", err)
	}
	if _, err := LoadKey(file+".none", nil); err == nil || !strings.Contains(err.Error(), file+".none") {
		t.Errorf("no key: got the error %v, want one that names the file", err)
	}
	signer, err := LoadKey(file, []byte("secret"))
	must(t, err)
	dir, _ := newLayout(t)
	if _, err := Sign(t.Context(), dir, serve(t, nil), signer); err == nil || !strings.Contains(err.Error(), "is it pushed?") {
		t.Errorf("not pushed: got the error %v, want one that says so", err)
	}
}
