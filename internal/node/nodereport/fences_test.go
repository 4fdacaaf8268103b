package nodereport

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

func TestTheWatchShowsRequestsToFence(t *testing.T) {
	api := newAPI(t)
	r, clock := start(t, api)
	want := []apiv1.FenceRequest{{VolumeName: "v", NodeName: "lost", Epoch: 6}}
	for _, requests := range [][]apiv1.FenceRequest{want, nil} {
		_, _, changed := r.Fences()
		ask(t, api, &apiv1.NodeRequests{Fences: requests})
		await(t, api, clock, "the requests changed", func(*apiv1.AzDriverNode) bool {
			select {
			case <-changed:
				return true
			default:
				return false
			}
		})
		if got, _, _ := r.Fences(); len(got) != len(requests) || len(got) == 1 && got[0] != requests[0] {
			t.Errorf("got requests %+v, want %+v", got, requests)
		}
	}
}

func TestResultsOfFencesOutliveTheProcessAndEdits(t *testing.T) {
	api := newAPI(t)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	result := apiv1.FenceResult{VolumeName: "v", NodeName: "lost", Epoch: 6, Key: "0xad1d540000060001"}
	for _, key := range []string{"0xad1d540000050001", result.Key} { // the second replaces the first
		written := result
		written.Key = key
		if err := r.Fenced(t.Context(), written); err != nil {
			t.Fatal(err)
		}
	}
	r, _ = newReporter(t, api, newScanner(t, &mountList{}))
	if _, results, _ := r.Fences(); len(results) != 0 {
		t.Errorf("before the first write: got results %+v, want none: they are not known yet", results)
	}
	if err := r.Announce(t.Context(), "w", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	if _, results, _ := r.Fences(); len(results) != 1 || results[0] != result {
		t.Errorf("after a restart: got results %+v, want %+v", results, result)
	}
	request := apiv1.FenceRequest{VolumeName: "u", NodeName: "lost", Epoch: 3}
	ask(t, api, &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{request}})
	edit(t, api, func(s *apiv1.AzDriverNodeStatus) { s.FenceResults = nil })
	if err := r.Forget(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	got := get(t, api)
	if r := got.Status.FenceResults; len(r) != 1 || r[0] != result || len(got.FenceRequests()) != 1 {
		t.Errorf("after an edit: got results %+v and requests %+v, want %+v and the edited requests",
			got.Status.FenceResults, got.FenceRequests(), result)
	}
	if requests, _, _ := r.Fences(); len(requests) != 1 || requests[0] != request {
		t.Errorf("without a watch: got requests %+v, want those that the write has read", requests)
	}
	if err := r.ForgetFence(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	if got := get(t, api).Status.FenceResults; len(got) != 0 {
		t.Errorf("after ForgetFence: got results %+v, want none", got)
	}
}
