package lifecycle

import "testing"

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
