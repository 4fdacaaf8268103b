package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/azuredisk-csi/azuredisk/image"
)

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	to := tar.NewWriter(zipped)
	for name, text := range files {
		must(t, to.WriteHeader(&tar.Header{
			Name: name,
			Mode: 0o644,
			Size: int64(len(text)),
		}))
		_, err := io.WriteString(to, text)
		must(t, err)
	}
	must(t, to.Close())
	must(t, zipped.Close())
	return buffer.Bytes()
}

func TestAChartIsAnArtifactAsHelmPushesIt(t *testing.T) {
	packaged := archive(t, map[string]string{
		"azuredisk/Chart.yaml":  "apiVersion: v2\nname: azuredisk\nversion: 1.2.3\nkeywords: [csi]\nhome: https://example.com\n",
		"azuredisk/values.yaml": "a: 1\n",
	})
	dir := filepath.Join(t.TempDir(), "chart")
	for range 2 { // the folder is replaced
		must(t, image.WriteChartLayout(dir, packaged))
	}
	index, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	list, err := index.IndexManifest()
	must(t, err)
	if len(list.Manifests) != 1 || list.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("got the manifests %+v, want one with the tag 1.2.3", list.Manifests)
	}
	chart, err := index.Image(list.Manifests[0].Digest)
	must(t, err)
	must(t, validate.Image(chart, validate.Fast))
	manifest, err := chart.Manifest()
	must(t, err)
	if manifest.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" ||
		manifest.Annotations["org.opencontainers.image.title"] != "azuredisk" {
		t.Errorf("got the manifest %+v, want Helm's type of the config and the chart's name", manifest)
	}
	config, err := chart.RawConfigFile()
	must(t, err)
	var metadata struct {
		Name     string
		Keywords []string
	}
	must(t, json.Unmarshal(config, &metadata))
	if metadata.Name != "azuredisk" || len(metadata.Keywords) != 1 {
		t.Errorf("got the config %s, want the content of Chart.yaml", config)
	}
	layers, err := chart.Layers()
	must(t, err)
	content, err := layers[0].Compressed()
	must(t, err)
	got, err := io.ReadAll(content)
	must(t, err)
	if len(layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" ||
		!bytes.Equal(got, packaged) {
		t.Errorf("got the layers %+v, want the archive alone", manifest.Layers)
	}
}

func TestWhatIsNoChartIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"no archive": {[]byte("this is no archive"), "gzip"},
		"no Chart.yaml": {archive(t, map[string]string{"azuredisk/charts/other/Chart.yaml": "version: 1.0.0\n"}),
			"no Chart.yaml"},
		"no version": {archive(t, map[string]string{"azuredisk/Chart.yaml": "name: azuredisk\n"}), "no version"},
	} {
		if err := image.WriteChartLayout(filepath.Join(t.TempDir(), "chart"), c.archive); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got the error %v, want one with %q", name, err, c.want)
		}
	}
}
