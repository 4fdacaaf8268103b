package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

func TestTheUninstallIsRefusedWhileThereAreDisks(t *testing.T) {
	t.Parallel()
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	cases := map[string]struct {
		objects []client.Object
		names   []string
	}{
		"nothing is there":                 {nil, nil},
		"only nodes are there":             {[]client.Object{&apiv1.AzDriverNode{ObjectMeta: meta("n", "node")}}, nil},
		"a volume of another installation": {[]client.Object{&apiv1.AzVolume{ObjectMeta: meta("other", "disk")}}, nil},
		"a volume and an attachment are there": {[]client.Object{&apiv1.AzVolume{ObjectMeta: meta("n", "disk")},
			&apiv1.AzVolumeAttachment{ObjectMeta: meta("n", "disk-node")}},
			[]string{"AzVolume disk", "AzVolumeAttachment disk-node", "--no-hooks"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := refuseWithDisks(t.Context(), fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(c.objects...).Build(),
				"n")
			if (err == nil) != (c.names == nil) {
				t.Fatalf("got %v", err)
			}
			for _, name := range c.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("the refusal does not name %s: %v", name, err)
				}
			}
		})
	}
}
