package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClaimMetadata reads a PersistentVolumeClaim, and the metadata of its namespace if that is wanted.
// The claim is nil if there is none. reader reads from the API server: the cache has neither labels
// nor annotations.
func ClaimMetadata(ctx context.Context, reader client.Reader, namespace, name string, withNamespace bool) (
	*corev1.PersistentVolumeClaim, metav1.ObjectMeta, error) {
	claim, err := Find[corev1.PersistentVolumeClaim](ctx, reader, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil || claim == nil || !withNamespace {
		return claim, metav1.ObjectMeta{}, err
	}
	of, err := Find[corev1.Namespace](ctx, reader, client.ObjectKey{Name: namespace})
	if err != nil || of == nil {
		return claim, metav1.ObjectMeta{}, err
	}
	return claim, of.ObjectMeta, nil
}
