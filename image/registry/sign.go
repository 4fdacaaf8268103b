package registry

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/azuredisk-csi/azuredisk/image/provenance"
)

// The format of cosign's signatures and attestations:
// https://github.com/sigstore/cosign/tree/main/specs.
const (
	simpleSigning       = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	envelope            = "application/vnd.dsse.envelope.v1+json"
	predicateAnnotation = "predicateType"
)

// LoadKey reads a private key: one that `cosign generate-key-pair` wrote, or another in PEM. The
// password may be empty.
func LoadKey(file string, password []byte) (signature.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(data, func(bool) ([]byte, error) { return password, nil })
	if err != nil {
		return nil, fmt.Errorf("read the private key in %s with the password in COSIGN_PASSWORD: %w", file, err)
	}
	return signature.LoadSigner(key, crypto.SHA256)
}

// Sign signs what Push gave a tag, and its provenance, which is beside the layout. It pushes both
// signatures beside it. Signatures that are there stay.
func Sign(ctx context.Context, dir, repository string, signer signature.Signer) ([]name.Digest, error) {
	to, manifests, _, err := open(dir, repository)
	if err != nil {
		return nil, err
	}
	predicate, err := os.ReadFile(provenance.File(dir))
	if err != nil {
		return nil, fmt.Errorf("read how %s was built (was it made of a commit, without other changes?): %w", dir, err)
	}
	var signed []name.Digest
	for _, descriptor := range manifests {
		if _, ok := descriptor.Annotations[refName]; !ok {
			continue
		}
		image := to.Digest(descriptor.Digest.String())
		if _, err := remote.Head(image, options(ctx)...); err != nil {
			return nil, explain("find "+image.Name()+" (is it pushed?)", image, err)
		}
		if err := signOne(ctx, image, signer); err != nil {
			return nil, explain("sign "+image.Name(), image, err)
		}
		if err := attest(ctx, image, predicate, signer); err != nil {
			return nil, explain("sign the provenance of "+image.Name(), image, err)
		}
		signed = append(signed, image)
	}
	return signed, nil
}

func signOne(ctx context.Context, image name.Digest, signer signature.Signer) error {
	content, err := json.Marshal(payload.Cosign{Image: image})
	if err != nil {
		return err
	}
	raw, err := signer.SignMessage(bytes.NewReader(content))
	if err != nil {
		return err
	}
	return add(ctx, image, ".sig", mutate.Addendum{
		Layer:       static.NewLayer(content, simpleSigning),
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(raw)},
	})
}

func attest(ctx context.Context, image name.Digest, predicate []byte, signer signature.Signer) error {
	_, sha256, _ := strings.Cut(image.DigestStr(), ":")
	statement, err := provenance.Statement(image.Context().Name(), sha256, predicate)
	if err != nil {
		return err
	}
	signed, err := dsse.WrapSigner(signer, provenance.PayloadType).SignMessage(bytes.NewReader(statement))
	if err != nil {
		return err
	}
	return add(ctx, image, ".att", mutate.Addendum{
		Layer: static.NewLayer(signed, envelope),
		// The signature is in the envelope.
		Annotations: map[string]string{signatureAnnotation: "", predicateAnnotation: provenance.PredicateType},
	})
}

// add adds a signature to those of the image at the tag with this end.
func add(ctx context.Context, image name.Digest, end string, signed mutate.Addendum) error {
	tag := image.Context().Tag(strings.ReplaceAll(image.DigestStr(), ":", "-") + end)
	signatures, err := signaturesAt(ctx, tag)
	if err != nil {
		return err
	}
	signatures, err = mutate.Append(signatures, signed)
	if err != nil {
		return err
	}
	return remote.Write(tag, signatures, options(ctx)...)
}

// signaturesAt are the signatures that are there, or an image without any.
func signaturesAt(ctx context.Context, tag name.Tag) (v1.Image, error) {
	there, err := remote.Image(tag, options(ctx)...)
	if answer, ok := errors.AsType[*transport.Error](err); ok && answer.StatusCode == http.StatusNotFound {
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	return there, err
}
