package scheduler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// apiStub is as much of an API server as informers need, over real HTTP: list,
// and watch with the initial events that newer clients ask for. A real
// kube-apiserver would take minutes to be filled with the objects of the benchmark.
type apiStub struct {
	mu       sync.Mutex
	version  int
	objects  map[string]map[string]client.Object
	watchers map[string][]chan event
	// sent are all events so far: a watch begins after the list that it follows.
	sent map[string][]event
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`

	version int
}

func startAPI(t testing.TB, objects ...client.Object) (*apiStub, *rest.Config) {
	t.Helper()
	stub := &apiStub{
		objects:  map[string]map[string]client.Object{},
		watchers: map[string][]chan event{},
		sent:     map[string][]event{},
	}
	for _, object := range objects {
		stub.put(object)
	}
	server := httptest.NewServer(stub)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return stub, &rest.Config{
		Host:  server.URL,
		QPS:   1000,
		Burst: 1000,
	}
}

func (s *apiStub) put(object client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, key := s.place(object)
	kind := "ADDED"
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]client.Object{}
	}
	if _, exists := s.objects[resource][key]; exists {
		kind = "MODIFIED"
	}
	s.version++
	object.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[resource][key] = object
	s.send(resource, event{Type: kind, Object: object})
}

func (s *apiStub) remove(object client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, key := s.place(object)
	s.version++
	object.SetResourceVersion(strconv.Itoa(s.version))
	delete(s.objects[resource], key)
	s.send(resource, event{Type: "DELETED", Object: object})
}

func (s *apiStub) send(resource string, e event) {
	e.version = s.version
	s.sent[resource] = append(s.sent[resource], e)
	for _, watcher := range s.watchers[resource] {
		watcher <- e
	}
}

// place returns the resource of an object and its key, and completes its type.
func (s *apiStub) place(object client.Object) (resource, key string) {
	key = object.GetNamespace() + "/" + object.GetName()
	kinds := object.GetObjectKind()
	switch object.(type) {
	case *apiv1.AzDriverNode:
		kinds.SetGroupVersionKind(apiv1.GroupVersion.WithKind("AzDriverNode"))
		return "azdrivernodes", key
	case *apiv1.AzVolumeAttachment:
		kinds.SetGroupVersionKind(apiv1.GroupVersion.WithKind("AzVolumeAttachment"))
		return "azvolumeattachments", key
	case *corev1.PersistentVolumeClaim:
		kinds.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
		return "persistentvolumeclaims", key
	case *corev1.PersistentVolume:
		kinds.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolume"))
		return "persistentvolumes", key
	case *corev1.Pod:
		kinds.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		return "pods", key
	case *storagev1.StorageClass:
		kinds.SetGroupVersionKind(storagev1.SchemeGroupVersion.WithKind("StorageClass"))
		return "storageclasses", key
	}
	panic(fmt.Sprintf("the stub does not serve %T", object))
}

var kindOf = map[string][2]string{
	"azdrivernodes":          {apiv1.GroupVersion.String(), "AzDriverNode"},
	"azvolumeattachments":    {apiv1.GroupVersion.String(), "AzVolumeAttachment"},
	"persistentvolumeclaims": {"v1", "PersistentVolumeClaim"},
	"persistentvolumes":      {"v1", "PersistentVolume"},
	"pods":                   {"v1", "Pod"},
	"storageclasses":         {"storage.k8s.io/v1", "StorageClass"},
}

func (s *apiStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resource := path.Base(r.URL.Path)
	kind, served := kindOf[resource]
	if !served {
		s.get(w, r)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		s.list(w, r, resource, kind)
		return
	}
	s.watch(w, r, resource, kind)
}

// get serves an object of the driver's namespace.
func (s *apiStub) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[path.Base(path.Dir(r.URL.Path))][apiv1.DefaultNamespace+"/"+path.Base(r.URL.Path)]
	if object == nil {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(object)
}

func (s *apiStub) list(w http.ResponseWriter, r *http.Request, resource string, kind [2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]client.Object, 0, len(s.objects[resource]))
	node, ofNode := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
	for _, object := range s.objects[resource] {
		if p, isPod := object.(*corev1.Pod); !isPod || !ofNode || p.Spec.NodeName == node {
			items = append(items, object)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": kind[0], "kind": kind[1] + "List",
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(s.version)}, "items": items,
	})
}

func (s *apiStub) watch(w http.ResponseWriter, r *http.Request, resource string, kind [2]string) {
	encoder, flush := json.NewEncoder(w), w.(http.Flusher).Flush
	events := make(chan event, 1000)
	s.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, object := range s.objects[resource] {
			_ = encoder.Encode(event{Type: "ADDED", Object: object})
		}
		_ = encoder.Encode(event{
			Type: "BOOKMARK",
			Object: map[string]any{"apiVersion": kind[0], "kind": kind[1], "metadata": map[string]any{
				"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]string{"k8s.io/initial-events-end": "true"},
			}},
		})
	} else if after, err := strconv.Atoi(r.URL.Query().Get("resourceVersion")); err == nil {
		for _, e := range s.sent[resource] {
			if e.version > after {
				_ = encoder.Encode(e)
			}
		}
	}
	s.watchers[resource] = append(s.watchers[resource], events)
	s.mu.Unlock()
	flush()
	for {
		select {
		case e := <-events:
			s.mu.Lock()
			_ = encoder.Encode(e)
			s.mu.Unlock()
			flush()
		case <-r.Context().Done():
			return
		}
	}
}
