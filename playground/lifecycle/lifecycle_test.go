package lifecycle

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestEveryTestHasASentenceOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, test := range All() {
		if test.Topic == "" || test.Name == "" || test.run == nil {
			t.Errorf("%q is not complete", test)
		}
		if seen[test.String()] {
			t.Errorf("%q is there twice", test)
		}
		seen[test.String()] = true
	}
}

func TestSelectTakesTopicsAndSentences(t *testing.T) {
	for expression, want := range map[string]string{"^copying:": copying, "immediate class": binding} {
		list, err := Select(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range list {
			if test.Topic != want {
				t.Errorf("%s selects %q, want only tests of %s", expression, test, want)
			}
		}
	}
	for _, expression := range []string{"no such sentence", "("} {
		if _, err := Select(expression); err == nil {
			t.Errorf("%q selects something", expression)
		}
	}
}

func TestTestsOfWhatIsNotServedAreLeftOut(t *testing.T) {
	served := schema.GroupVersionResource{
		Group:    "g",
		Version:  "v1",
		Resource: "served",
	}
	tests := []Test{{Name: "needs nothing"}, {
		Name:  "needs what is served",
		Needs: served,
	}, {Name: "needs what is not", Needs: attributesClasses}}
	left, out, err := leaveOut(tests, func(r schema.GroupVersionResource) (bool, error) { return r == served, nil })
	if err != nil || len(left) != 2 || len(out) != 1 || out[0].Needs != attributesClasses {
		t.Errorf("left %v, left out %v, error %v; want only the last one left out", left, out, err)
	}
	unreachable := errors.New("unreachable")
	if _, _, err := leaveOut(tests, func(schema.GroupVersionResource) (bool, error) { return false, unreachable }); !errors.Is(
		err, unreachable) {
		t.Errorf("if the API server cannot be asked: got %v, want its error", err)
	}
}
