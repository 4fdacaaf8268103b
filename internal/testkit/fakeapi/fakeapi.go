// Package fakeapi builds clients of an API server in memory, for tests of a single reconciler or
// call. Tests of several at once use memapi.
package fakeapi

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
		WithStatusSubresource(&apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}, &apiv1.AzDriverNode{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
				opts ...client.PatchOption) error {
				return unfit(o, c.Patch(ctx, o, patch, opts...))
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
				opts ...client.SubResourcePatchOption) error {
				return unfit(o, c.SubResource(sub).Patch(ctx, o, patch, opts...))
			},
		})
}

// unfit is the error of a patch that does not fit the object, as an API server returns it.
func unfit(o client.Object, err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, o.GetName(),
		err.Error(), 0, false)
}
