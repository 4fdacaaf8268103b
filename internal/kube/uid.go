package kube

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UID returns the UID of the namespace kube-system. It identifies the cluster: the namespace
// exists as long as the cluster, and a restore into another cluster makes an object with another
// UID.
func UID(ctx context.Context, reader client.Reader) (string, error) {
	namespace, err := Find[corev1.Namespace](ctx, reader, client.ObjectKey{Name: metav1.NamespaceSystem})
	switch {
	case err != nil:
		return "", err
	case namespace == nil || namespace.UID == "":
		return "", errors.New("the namespace " + metav1.NamespaceSystem + " does not exist yet")
	}
	return string(namespace.UID), nil
}
