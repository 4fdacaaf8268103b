package imds_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/imds"
)

const (
	vm       = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/node-a"
	scaleSet = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"
)

func node(providerID, region, zone string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{
			corev1.LabelTopologyRegion: region, corev1.LabelTopologyZone: zone, corev1.LabelInstanceTypeStable: "Standard_D2s_v3",
		}},
		Spec: corev1.NodeSpec{ProviderID: providerID},
	}
}

func TestFromNode(t *testing.T) {
	tests := map[string]struct {
		node *corev1.Node
		want apiv1.AzDriverNodeSpec
		err  bool
	}{
		"a VM in a zone": {node: node("azure://"+vm, "eastus", "eastus-2"),
			want: apiv1.AzDriverNodeSpec{VMID: vm, VMSize: "Standard_D2s_v3", Location: "eastus", Zone: "2"}},
		"an instance of a scale set": {node: node("azure://"+scaleSet, "eastus", "eastus-1"),
			want: apiv1.AzDriverNodeSpec{VMID: scaleSet, VMSize: "Standard_D2s_v3", Location: "eastus", Zone: "1"}},
		"a VM in no zone, whose label holds the fault domain": {node: node("azure://"+vm, "westus", "0"),
			want: apiv1.AzDriverNodeSpec{VMID: vm, VMSize: "Standard_D2s_v3", Location: "westus"}},
		"a VM without labels of a region": {node: node("azure://"+vm, "", "-1"),
			want: apiv1.AzDriverNodeSpec{VMID: vm, VMSize: "Standard_D2s_v3"}},
		"a node of another cloud":                                    {node: node("aws:///eu-1/i-123", "eu", "eu-1"), err: true},
		"a node without a provider ID, as before its initialisation": {node: node("", "eastus", "eastus-1"), err: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := imds.FromNode(test.node)
			if got != test.want || (err != nil) != test.err {
				t.Errorf("FromNode = %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	good := `{"resourceId":"` + vm + `","vmSize":"Standard_D4s_v5","location":"EastUS","zone":"3"}`
	want := apiv1.AzDriverNodeSpec{VMID: vm, VMSize: "Standard_D4s_v5", Location: "eastus", Zone: "3"}
	fallback := apiv1.AzDriverNodeSpec{VMID: scaleSet, VMSize: "Standard_D2s_v3", Location: "eastus", Zone: "1"}
	both := []imds.Source{imds.SourceIMDS, imds.SourceLabels}
	tests := map[string]struct {
		sources     []imds.Source
		status      int
		body        string
		unanswering bool
		nodeErr     error
		want        apiv1.AzDriverNodeSpec
		err         bool
	}{
		"instance metadata first": {sources: both, status: 200, body: good, want: want},
		"labels first": {
			sources: []imds.Source{imds.SourceLabels, imds.SourceIMDS}, status: 200, body: good, want: fallback},
		"labels where instance metadata fails": {sources: both, status: 500, want: fallback},
		"labels where instance metadata is something else": {
			sources: both,
			status:  200,
			body:    `{"resourceId":"/subscriptions/s"}`,
			want:    fallback,
		},
		"labels where instance metadata does not answer": {sources: both, unanswering: true, want: fallback},
		"nothing answers": {sources: both, status: 404, nodeErr: errors.New("forbidden"), err: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if test.unanswering {
					<-release
					return
				}
				if r.Header.Get("Metadata") != "true" || r.URL.Path != "/metadata/instance/compute" ||
					r.URL.Query().Get("api-version") == "" {
					t.Errorf("request = %s %v", r.URL, r.Header)
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			defer close(release)
			got, err := imds.Find(t.Context(), imds.Options{
				Sources:  test.sources,
				Endpoint: server.URL,
				Node: func(context.Context) (*corev1.Node, error) {
					return node("azure://"+scaleSet, "eastus", "eastus-1"), test.nodeErr
				},
			})
			if got != test.want || (err != nil) != test.err {
				t.Errorf("Find = %+v, %v, want %+v", got, err, test.want)
			}
			if test.err && (!strings.Contains(err.Error(), "imds:") || !strings.Contains(err.Error(), "labels:")) {
				t.Errorf("the error does not name both sources: %v", err)
			}
		})
	}
}

func TestNoProxyIsAsked(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { t.Error("a proxy was asked for instance metadata") }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	// An address of the documentation range, which does not answer.
	if _, err := imds.Find(t.Context(), imds.Options{
		Sources:  []imds.Source{imds.SourceIMDS},
		Endpoint: "http://192.0.2.1",
	}); err == nil {
		t.Error("an answer came from nowhere")
	}
}
