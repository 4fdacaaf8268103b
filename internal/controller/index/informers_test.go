package index

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// An object that comes with a list is the same as one that comes with a watch, which client-go
// reads and trimOwn trims.
func TestAListedObjectIsWhatAWatchedOneIs(t *testing.T) {
	t.Parallel()
	fill := randfill.New().RandSource(rand.NewSource(1)).NilChance(0.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(m *metav1.Time, c randfill.Continue) { *m = metav1.Unix(c.Int63n(1<<32), 0) },
		func(m *metav1.MicroTime, c randfill.Continue) {
			*m = metav1.NewMicroTime(metav1.Unix(c.Int63n(1<<32), 0).Time)
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:metadata":{}}`) },
	)
	for _, kind := range []client.Object{&apiv1.AzVolume{}, &apiv1.AzVolumeAttachment{}, &apiv1.AzDriverNode{}} {
		item := itemOf(kind)
		for range 50 {
			full := kind.DeepCopyObject()
			fill.Fill(full)
			text, err := json.Marshal(full)
			if err != nil {
				t.Fatal(err)
			}
			watched := kind.DeepCopyObject()
			if err := json.Unmarshal(text, watched); err != nil {
				t.Fatal(err)
			}
			if _, err := trimOwn(watched); err != nil {
				t.Fatal(err)
			}
			listed, err := item(func(into any) error { return jsonv2.Unmarshal(text, into) })
			if err != nil || !reflect.DeepEqual(listed, watched) {
				t.Fatalf("%s: got %+v, %v, want %+v", text, listed, err, watched)
			}
		}
	}
}
