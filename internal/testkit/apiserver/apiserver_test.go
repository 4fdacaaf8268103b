package apiserver_test

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func TestServerKnowsTheCustomResources(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	node := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n"},
		Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm"},
	}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}
