package nodereport

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// The API server took the write and its answer was lost. The repetition finds nothing to write, and
// the process must know the entry nevertheless: when the object is deleted by force afterwards, the
// next write makes it again with the entries that the process knows.
func TestLaw3AnEntryWhoseWriteSeemedToFailIsKnown(t *testing.T) {
	base := newAPI(t)
	api, loseAnswer := losingAnswers(base)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.Announce(t.Context(), "v", 1, "/p"))
	loseAnswer()
	if err := r.Announce(t.Context(), "w", 1, "/q"); err == nil {
		t.Error("the lost answer was taken for a success")
	}
	must(r.Announce(t.Context(), "w", 1, "/q"))
	entries, err := r.Entries(t.Context())
	must(err)
	if got := describe(&apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{StagedVolumes: entries}}); got != "v:1:Staging w:1:Staging" {
		t.Errorf("the process knows %q, want both entries", got)
	}
	must(base.Delete(t.Context(), get(t, base)))
	must(r.Restage(t.Context(), "v"))
	must(r.Announce(t.Context(), "v", 2, "/p"))
	if got := describe(get(t, base)); got != "v:2:Staging w:1:Staging" {
		t.Errorf("the report that was made again has %q, want both entries", got)
	}
}
