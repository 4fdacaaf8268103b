package collect

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/whatif"
)

// mostNames is how many names are offered.
const mostNames = 500

// Names returns the names of objects of a kind, at most 500, with one request for their metadata. Those
// of a zone are the values of a label of Nodes.
func Names(ctx context.Context, from client.Reader, kind explain.Kind, namespace string) ([]string, error) {
	if kind == "" {
		return nil, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	group, resource := corev1.SchemeGroupVersion, kind
	if kind == explain.KindSnapshot {
		group = SnapshotGroup
	}
	if kind == whatif.KindZone {
		resource = explain.KindNode
	}
	list.SetGroupVersionKind(group.WithKind(string(resource) + "List"))
	if err := from.List(ctx, list, client.InNamespace(namespace), client.Limit(mostNames)); err != nil {
		return nil, fmt.Errorf("list names of %s: %w", kind, err)
	}
	var names []string
	for i := range list.Items {
		name := list.Items[i].Name
		if kind == whatif.KindZone {
			name = list.Items[i].Labels[corev1.LabelTopologyZone]
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}
