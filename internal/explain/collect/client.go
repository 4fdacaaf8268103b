package collect

import (
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// NewReader returns a client for the API server of a configuration, and a clock that shows the
// server's time: the given one, of the user's machine, may differ, and times of the cluster are
// compared with it.
func NewReader(config *rest.Config, own clock.PassiveClock) (client.Reader, *ServerClock, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the number of requests is bounded
	config.WarningHandler = rest.NoWarnings{}
	now := &ServerClock{own: own}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return roundTripper{next, now} })
	reader, err := client.New(config, client.Options{Scheme: scheme(), Mapper: mapper()})
	return reader, now, err
}

// scheme has Kubernetes' types and the driver's.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiv1.AddToScheme(s))
	return s
})

// mapper knows the resources that are read, so that nothing has to be discovered.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	add := func(group schema.GroupVersion, scope meta.RESTScope, kinds ...string) {
		for _, kind := range kinds {
			m.Add(group.WithKind(kind), scope)
		}
	}
	add(corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "Pod", "PersistentVolumeClaim", "Event")
	add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Node", "PersistentVolume")
	add(storagev1.SchemeGroupVersion, meta.RESTScopeRoot, "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment")
	add(coordinationv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Lease")
	add(appsv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Deployment", "DaemonSet")
	add(apiv1.GroupVersion, meta.RESTScopeNamespace, "AzVolume", "AzVolumeAttachment", "AzDriverNode")
	add(SnapshotGroup, meta.RESTScopeNamespace, "VolumeSnapshot")
	m.AddSpecific(SnapshotGroup.WithKind("VolumeSnapshotClass"),
		SnapshotGroup.WithResource("volumesnapshotclasses"), SnapshotGroup.WithResource("volumesnapshotclass"),
		meta.RESTScopeRoot)
	return m
}

// ServerClock is the time of the server, as far as its answers say it.
type ServerClock struct {
	own   clock.PassiveClock
	mu    sync.Mutex
	ahead time.Duration
}

// Now returns the server's time, in the user's time zone.
func (c *ServerClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own.Now().Add(c.ahead)
}

// precision is that of the header Date.
const precision = 2 * time.Second

func (c *ServerClock) observe(date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead = at.Sub(c.own.Now()); c.ahead.Abs() < precision {
		c.ahead = 0
	}
}

type roundTripper struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip notes the time of the answer.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(request)
	if err == nil {
		r.clock.observe(answer.Header.Get("Date"))
	}
	return answer, err
}
