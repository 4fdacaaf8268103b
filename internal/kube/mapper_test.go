package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type countingMapper struct {
	meta.RESTMapper
	asked int
}

func (m *countingMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.asked++
	return m.RESTMapper.RESTMapping(kind, versions...)
}

func TestTheMapperRemembersTheKindsThatItHasFound(t *testing.T) {
	t.Parallel()
	kinds := meta.NewDefaultRESTMapper(nil)
	disk := schema.GroupVersionKind{
		Group:   "disk.csi.azure.com",
		Version: "v1",
		Kind:    "AzVolume",
	}
	inner := &countingMapper{RESTMapper: kinds}
	m := &mapperWithMemory{RESTMapper: inner}
	for range 2 {
		if _, err := m.RESTMapping(disk.GroupKind(), disk.Version); !meta.IsNoMatchError(err) {
			t.Fatalf("got error %v for a kind that is not there, want a NoMatchError", err)
		}
	}
	kinds.Add(disk, meta.RESTScopeNamespace)
	for range 3 {
		got, err := m.RESTMapping(disk.GroupKind(), disk.Version)
		if err != nil || got.Scope.Name() != meta.RESTScopeNameNamespace || got.GroupVersionKind != disk {
			t.Fatalf("got %+v, %v, want the mapping of %s", got, err, disk)
		}
	}
	if inner.asked != 3 {
		t.Errorf("got %d questions, want 3: two without an answer, and one with", inner.asked)
	}
}
