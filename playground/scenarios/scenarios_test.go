package scenarios

import "testing"

func TestScenariosAreFoundByName(t *testing.T) {
	t.Parallel()
	for _, s := range All {
		if got, err := Find(s.Name); err != nil || got.Title != s.Title || s.Summary == "" || s.Title == "" {
			t.Errorf("%s: got %+v, %v, want the scenario with a title and a summary", s.Name, got, err)
		}
	}
	if _, err := Find("nonsense"); err == nil {
		t.Error("got no error for an unknown scenario, want one")
	}
}
