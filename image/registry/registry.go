// Package registry pushes an OCI layout to a registry and signs what was pushed.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// refName is the annotation of OCI layouts for the tag of an image.
const refName = "org.opencontainers.image.ref.name"

func options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// Push pushes everything in the layout to the repository: what has a name in the layout under this
// name as its tag, and the rest, which refers to it, by digest. It returns the references of what
// has a tag, with their digests.
func Push(ctx context.Context, dir, repository string) ([]name.Digest, error) {
	to, manifests, index, err := open(dir, repository)
	if err != nil {
		return nil, err
	}
	var pushed []name.Digest
	for _, descriptor := range manifests {
		var ref name.Reference = to.Digest(descriptor.Digest.String())
		if tag, ok := descriptor.Annotations[refName]; ok {
			if ref, err = name.NewTag(to.Name() + ":" + tag); err != nil {
				return nil, err
			}
			pushed = append(pushed, to.Digest(descriptor.Digest.String()))
		}
		if err := pushOne(ctx, index, descriptor, ref); err != nil {
			return nil, explain("push "+ref.Name(), ref, err)
		}
	}
	return pushed, nil
}

func open(dir, repository string) (name.Repository, []v1.Descriptor, v1.ImageIndex, error) {
	to, err := name.NewRepository(repository)
	if err != nil {
		return to, nil, nil, fmt.Errorf("the repository %q: %w; want a name like registry.example.com/azuredisk", repository, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return to, nil, nil, fmt.Errorf("read the image in %s, which `make image` makes: %w", dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return to, nil, nil, fmt.Errorf("read the image in %s: %w", dir, err)
	}
	return to, manifest.Manifests, index, nil
}

func pushOne(ctx context.Context, index v1.ImageIndex, descriptor v1.Descriptor, ref name.Reference) error {
	if descriptor.MediaType.IsIndex() {
		child, err := index.ImageIndex(descriptor.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, child, options(ctx)...)
	}
	child, err := index.Image(descriptor.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, child, options(ctx)...)
}

// explain says what the user can do about an error of a registry.
func explain(attempt string, ref name.Reference, err error) error {
	host := ref.Context().RegistryStr()
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return fmt.Errorf("%s: %w (is %s a registry that this machine reaches?)", attempt, err, host)
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("%s: %s wants credentials or refuses those in Docker's configuration (~/.docker/config.json, or the folder in DOCKER_CONFIG); "+
			"sign in with `docker login %s`, or `az acr login` for a registry of Azure: %w", attempt, host, host, err)
	case http.StatusForbidden:
		return fmt.Errorf("%s: %s does not allow this account to write to %s: %w", attempt, host, ref.Context().RepositoryStr(),
			err)
	case http.StatusNotFound:
		return fmt.Errorf("%s: %s has no repository %s, or it is no registry: %w", attempt, host, ref.Context().RepositoryStr(),
			err)
	}
	return fmt.Errorf("%s: %s answered %d: %w", attempt, host, answer.StatusCode, err)
}
