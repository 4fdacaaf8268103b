// Package fakeapi builds clients of an API server in memory, for tests of a single reconciler or
// call. Tests of several at once use memapi.
package fakeapi

import (
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Scheme has Kubernetes' types and the driver's.
func Scheme() *k8sruntime.Scheme {
	scheme := k8sruntime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiv1.AddToScheme(scheme))
	return scheme
}

// With returns a builder of a client with these objects, in which the status of each custom
// resource is a subresource.
func With(objects ...client.Object) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).
		WithStatusSubresource(&apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}, &apiv1.AzDriverNode{})
}
