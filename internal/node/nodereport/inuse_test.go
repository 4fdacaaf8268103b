package nodereport

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// TestVolumesInUseAreThoseThatAreStagedAndRead follows a volume from its announcement until it is
// forgotten.
func TestVolumesInUseAreThoseThatAreStagedAndRead(t *testing.T) {
	volume := &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "v"},
		Spec:       apiv1.AzVolumeSpec{ClaimRef: objects.Claim("shop/data")},
	}
	api := newAPI(t, volume)
	r, clock := newReporter(t, api, newScanner(t, &mountList{}))
	ctx := t.Context()
	inUse := func() string {
		var found []string
		for _, used := range r.InUse() {
			found = append(found, fmt.Sprintf("%s %s %s", used.Volume.Name, used.Volume.Claim(), used.Device))
		}
		return strings.Join(found, ", ")
	}
	beat := func() error { _, err := r.beat(ctx); return err }
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"announce", func() error { return r.Announce(ctx, "v", 1, "/p") }, ""},
		{"confirm before it was read", func() error {
			return r.Confirm(ctx, apiv1.StagedVolume{VolumeName: "v", Epoch: 1, Device: "/dev/sdc"})
		}, ""},
		{"the next heartbeat", beat, "v shop/data /dev/sdc"},
		{"a change of the claim", func() error {
			volume.Spec.ClaimRef = objects.Claim("shop/other")
			return api.Update(ctx, volume)
		}, "v shop/data /dev/sdc"},
		{"a heartbeat after five minutes", func() error {
			clock.Step(observationAge + 1)
			return beat()
		}, "v shop/other /dev/sdc"},
		{"stage it again", func() error { return r.Restage(ctx, "v") }, ""},
		{"confirm", func() error {
			return r.Confirm(ctx, apiv1.StagedVolume{VolumeName: "v", Epoch: 1, Device: "/dev/sdd"})
		}, "v shop/other /dev/sdd"},
		{"begin to unstage", func() error { return r.BeginUnstage(ctx, "v") }, "v shop/other /dev/sdd"},
		{"forget", func() error { return r.Forget(ctx, "v") }, ""},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := inUse(); got != step.want {
			t.Errorf("after %s: got %q, want %q", step.name, got, step.want)
		}
	}
	if len(r.observed) != 0 {
		t.Errorf("got %d observations after the volume was forgotten, want none", len(r.observed))
	}
}
