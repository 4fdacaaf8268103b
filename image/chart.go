package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The media types of Helm's charts in registries: https://helm.sh/docs/topics/registries/.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// WriteChartLayout writes an OCI layout of a packaged Helm chart, tagged with the chart's version.
// It replaces the folder. A registry serves it to `helm install oci://…`.
func WriteChartLayout(dir string, archive []byte) error {
	metadata, err := chartMetadata(archive)
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	tag, ok := metadata["version"].(string)
	if !ok || tag == "" {
		return errors.New("read the chart: its Chart.yaml has no version")
	}
	chart, err := newChartArtifact(metadata, archive)
	if err != nil {
		return fmt.Errorf("make the chart's manifest: %w", err)
	}
	return replace(dir, func(dir string) error {
		to, err := layout.Write(dir, empty.Index)
		if err != nil {
			return err
		}
		return to.AppendImage(chart, layout.WithAnnotations(map[string]string{refName: tag}))
	})
}

// chartMetadata is the content of Chart.yaml in the archive.
func chartMetadata(archive []byte) (map[string]any, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the archive has no Chart.yaml in its only folder")
		}
		if err != nil {
			return nil, err
		}
		if ok, _ := path.Match("*/Chart.yaml", strings.TrimPrefix(header.Name, "./")); !ok {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		metadata := map[string]any{}
		return metadata, yaml.Unmarshal(text, &metadata)
	}
}

// chartArtifact is what a registry holds of a chart: its metadata as the config, and the archive as
// the only layer.
type chartArtifact struct {
	config, manifest []byte
	layer            v1.Layer
}

func newChartArtifact(metadata map[string]any, archive []byte) (v1.Image, error) {
	config, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	layer := static.NewLayer(archive, chartContent)
	described := v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		Annotations:   chartAnnotations(metadata),
	}
	for _, part := range []struct {
		layer v1.Layer
		add   func(v1.Descriptor)
	}{
		{static.NewLayer(config, chartConfig), func(d v1.Descriptor) { described.Config = d }},
		{layer, func(d v1.Descriptor) { described.Layers = []v1.Descriptor{d} }},
	} {
		descriptor, err := partial.Descriptor(part.layer)
		if err != nil {
			return nil, err
		}
		part.add(*descriptor)
	}
	manifest, err := json.Marshal(described)
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(chartArtifact{
		config:   config,
		manifest: manifest,
		layer:    layer,
	})
}

// chartAnnotations are those that Helm gives a chart that it pushes.
func chartAnnotations(metadata map[string]any) map[string]string {
	annotations := map[string]string{}
	for annotation, field := range map[string]string{
		"title":       "name",
		"version":     "version",
		"description": "description",
		"url":         "home",
	} {
		if value, ok := metadata[field].(string); ok {
			annotations["org.opencontainers.image."+annotation] = value
		}
	}
	return annotations
}

func (c chartArtifact) RawConfigFile() ([]byte, error)      { return c.config, nil }
func (c chartArtifact) RawManifest() ([]byte, error)        { return c.manifest, nil }
func (c chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (c chartArtifact) LayerByDigest(hash v1.Hash) (partial.CompressedLayer, error) {
	digest, err := c.layer.Digest()
	if err != nil || digest != hash {
		return nil, errors.Join(fmt.Errorf("the chart has no layer %s", hash), err)
	}
	return c.layer, nil
}
