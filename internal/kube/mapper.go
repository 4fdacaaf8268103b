package kube

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// NewMapper returns controller-runtime's mapper of kinds to resources, which remembers the kinds
// that it has found. A cache that is limited to a namespace asks it at each read: without the
// memory that takes a sixth of the processor time of a start.
func NewMapper(cfg *rest.Config, client *http.Client) (meta.RESTMapper, error) {
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, client)
	return &mapperWithMemory{RESTMapper: mapper}, err
}

type mapperWithMemory struct {
	meta.RESTMapper
	known sync.Map // of versioned kinds to their mappings
}

// RESTMapping returns the mapping of a kind. It asks again as long as there is none.
func (m *mapperWithMemory) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	key := kind.WithVersion(versions[0])
	if known, ok := m.known.Load(key); ok {
		return known.(*meta.RESTMapping), nil
	}
	mapping, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.known.Store(key, mapping)
	}
	return mapping, err
}
