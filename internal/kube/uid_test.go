package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

func TestUID(t *testing.T) {
	t.Parallel()
	api := fake.NewClientBuilder().Build()
	if uid, err := kube.UID(t.Context(), api); uid != "" || err == nil {
		t.Errorf("got %q, %v before the namespace kube-system exists, want an error", uid, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "6c1b"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if uid, err := kube.UID(t.Context(), api); uid != "6c1b" || err != nil {
		t.Errorf("got %q, %v, want the UID of the namespace", uid, err)
	}
}
