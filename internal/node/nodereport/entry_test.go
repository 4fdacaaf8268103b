package nodereport

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
	got := describe(&apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{StagedVolumes: entries}})
	if got != "v:1:Staging w:1:Staging" {
		t.Errorf("the process knows %q, want both entries", got)
	}
	must(base.Delete(t.Context(), get(t, base)))
	must(r.Restage(t.Context(), "v"))
	must(r.Announce(t.Context(), "v", 2, "/p"))
	if got := describe(get(t, base)); got != "v:2:Staging w:1:Staging" {
		t.Errorf("the report that was made again has %q, want both entries", got)
	}
}

// A pod's object goes after its last unmount, and its successor may be placed at once: by then the
// report must say that the volume is mounted for no pod.
func TestTheReportSaysWhetherAVolumeIsMountedForAPod(t *testing.T) {
	api := newAPI(t)
	fails := false
	failing := interceptor.NewClient(api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if fails {
				return errors.New("no answer")
			}
			return c.Status().Patch(ctx, o, patch, opts...)
		},
	})
	r, _ := newReporter(t, failing, newScanner(t, &mountList{}))
	ctx := t.Context()
	if err := r.EnsureScanned(ctx); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name   string
		do     func() error
		fails  bool
		want   bool
		writes bool
	}{
		{"it is announced", func() error { return r.Announce(ctx, "v", 1, "/p") }, false, true, true},
		{"it is staged", func() error { return r.Confirm(ctx, apiv1.StagedVolume{VolumeName: "v", Epoch: 1}) }, false, true, true},
		{"it is published", func() error { return r.Publish(ctx, "v") }, false, true, false},
		{"it is unpublished", func() error { return r.Unpublished(ctx, "v") }, false, false, true},
		{"it is unpublished again", func() error { return r.Unpublished(ctx, "v") }, false, false, false},
		{"it is published without a stage", func() error { return r.Publish(ctx, "v") }, false, true, true},
		{"the write of its end fails", func() error { return r.Unpublished(ctx, "v") }, true, true, false},
		{"the next write", func() error { return r.Announce(ctx, "w", 1, "/q") }, false, false, true},
		{"it is staged for another pod", func() error { return r.Announce(ctx, "v", 1, "/p") }, false, true, true},
	} {
		before := get(t, api).ResourceVersion
		fails = step.fails
		if err := step.do(); (err != nil) != step.fails {
			t.Fatalf("%s: got %v", step.name, err)
		}
		after := get(t, api)
		if got := after.Status.StagedVolumes[0].Published; got != step.want || (after.ResourceVersion != before) != step.writes {
			t.Errorf("after %q: got published %t, written %t; want %t, %t", step.name, got, after.ResourceVersion != before,
				step.want, step.writes)
		}
	}
}
