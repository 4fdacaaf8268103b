package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// NewReader returns a client for the API server of a configuration, and a clock that shows the
// server's time: the given one, of the user's machine, may differ, and times of the cluster are
// compared with it.
func NewReader(config *rest.Config, own clock.PassiveClock) (client.WithWatch, *ServerClock, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the number of requests is bounded
	config.WarningHandler = rest.NoWarnings{}
	now := &ServerClock{own: own}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return roundTripper{next, now} })
	reader, err := client.NewWithWatch(config, client.Options{Scheme: scheme(), Mapper: mapper()})
	return reader, now, err
}

// scheme has Kubernetes' types and the driver's.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiv1.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
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
	add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Node", "PersistentVolume", "Namespace")
	add(storagev1.SchemeGroupVersion, meta.RESTScopeRoot, "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment",
		"VolumeAttributesClass")
	add(coordinationv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Lease")
	add(appsv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Deployment", "DaemonSet")
	add(discoveryv1.SchemeGroupVersion, meta.RESTScopeNamespace, "EndpointSlice")
	add(admissionv1.SchemeGroupVersion, meta.RESTScopeRoot, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	add(apiextensionsv1.SchemeGroupVersion, meta.RESTScopeRoot, "CustomResourceDefinition")
	add(apiv1.GroupVersion, meta.RESTScopeNamespace, "AzVolume", "AzVolumeAttachment", "AzDriverNode")
	add(SnapshotGroup, meta.RESTScopeNamespace, "VolumeSnapshot")
	m.AddSpecific(SnapshotGroup.WithKind("VolumeSnapshotClass"),
		SnapshotGroup.WithResource("volumesnapshotclasses"), SnapshotGroup.WithResource("volumesnapshotclass"),
		meta.RESTScopeRoot)
	return constraintMapper{m}
}

// constraintGroup is the API group of Gatekeeper's constraints. Each template makes a kind.
const constraintGroup = "constraints.gatekeeper.sh"

// constraintMapper also knows the kinds of constraints.
type constraintMapper struct{ meta.RESTMapper }

// RESTMapping names the resource of a kind.
func (m constraintMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if kind.Group != constraintGroup || len(versions) == 0 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	group := schema.GroupVersion{Group: kind.Group, Version: versions[0]}
	return &meta.RESTMapping{
		Resource:         group.WithResource(strings.ToLower(kind.Kind)),
		GroupVersionKind: group.WithKind(kind.Kind),
		Scope:            meta.RESTScopeRoot,
	}, nil
}

// ServerVersion returns a function that asks the API server of a configuration for its version.
func ServerVersion(config *rest.Config) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		asks, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return "", err
		}
		text, err := asks.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
		if err != nil {
			return "", err
		}
		var found version.Info
		if err := json.Unmarshal(text, &found); err != nil {
			return "", fmt.Errorf("read the version of the API server: %w", err)
		}
		return found.GitVersion, nil
	}
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
