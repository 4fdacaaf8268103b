package kube

import (
	"testing"

	clientfeatures "k8s.io/client-go/features"
)

func TestCachesBeginWithLists(t *testing.T) {
	others := lists{clientfeatures.FeatureGates()}
	if others.Enabled(clientfeatures.WatchListClient) {
		t.Error("caches begin with streams of events")
	}
	if f := clientfeatures.InformerResourceVersion; others.Enabled(f) != others.Gates.Enabled(f) {
		t.Errorf("feature %s is changed", f)
	}
}
