package kube_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestACallWhoseTurnWouldComeTooLateIsADeadlineExceeded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`))
	}))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL}
	kube.Pace(cfg, 0.001, 1)
	client, err := kubernetes.NewForConfig(cfg)
	expect.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{}); err != nil {
		t.Fatalf("the first call: %v", err)
	}
	_, err = client.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
	if !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call whose turn comes after its deadline: %v", err)
	}
	cancel()
	if _, err = client.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
}
