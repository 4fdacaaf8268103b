package store_test

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/kubeapi/store"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func node(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

// A reflector replaces all objects after it has lost its watch. What is gone by then is told as
// well.
func TestRecordsFollowTheObjects(t *testing.T) {
	t.Parallel()
	var told []string
	s := store.New(func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID },
		func(key client.ObjectKey, before, after *string) {
			change := key.Name
			for _, record := range []*string{before, after} {
				if record != nil {
					change += " " + *record
				} else {
					change += " -"
				}
			}
			told = append(told, change)
		})
	select {
	case <-s.Filled():
		t.Error("a store is filled before the first list")
	default:
	}
	err := errors.Join(s.Replace([]any{node("a", "1"), node("b", "2")}, "1"), s.Update(node("b", "3")), s.Delete(node("a", "1")),
		s.Replace([]any{node("c", "4")}, "4"))
	expect.Must(t, err)
	<-s.Filled()
	if want := []string{"a - 1", "b - 2", "b 2 3", "a 1 -", "c - 4", "b 3 -"}; !slices.Equal(told, want) {
		t.Errorf("got the changes %q; want %q", told, want)
	}
	if got := s.Get(client.ObjectKey{Name: "c"}); got == nil || *got != "4" {
		t.Errorf("got the record %v of c; want 4", got)
	}
	if got := s.Get(client.ObjectKey{Name: "b"}); got != nil {
		t.Errorf("got the record %q of an object that is gone", *got)
	}
	if s.Add("no object") == nil {
		t.Error("what is not an object was added without an error")
	}
}
