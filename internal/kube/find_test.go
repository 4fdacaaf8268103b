package kube_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

func TestFind(t *testing.T) {
	t.Parallel()
	there := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}).Build()
	if node, err := kube.Find[corev1.Node](t.Context(), there, client.ObjectKey{Name: "n"}); err != nil || node == nil ||
		node.Name != "n" {
		t.Errorf("got %v, %v, want node n", node, err)
	}
	if node, err := kube.Find[corev1.Node](t.Context(), there, client.ObjectKey{Name: "other"}); err != nil || node != nil {
		t.Errorf("got %v, %v for a node that does not exist, want nil", node, err)
	}
	away := interceptor.NewClient(there, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewServiceUnavailable("down")
		},
	})
	node, err := kube.Find[corev1.Node](t.Context(), away, client.ObjectKey{Name: "n"})
	if node != nil || !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "read Node n: ") {
		t.Errorf("got %v, %v, want no node and the server's error", node, err)
	}
}
