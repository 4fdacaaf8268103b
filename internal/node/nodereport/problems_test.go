package nodereport

import (
	"context"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
)

// A heartbeat is due when the reporter was woken, and costs nothing otherwise.
func TestAProblemIsWrittenOnceAndRemovedWhenItHasEnded(t *testing.T) {
	writes := 0
	api := interceptor.NewClient(newAPI(t), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			writes++
			return c.Status().Patch(ctx, o, patch, opts...)
		},
	})
	r, clock := newReporter(t, api, newScanner(t, &mountList{}))
	if err := r.Announce(t.Context(), "v", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	<-r.wake // the condition of a process that is starting
	saw := func(r *Reporter, reason string) {
		r.Saw("v", problem.Mounted, reason, "words <\n…>"+strings.Repeat("x", 2*LongestReason))
		r.ReviewProblems()
	}
	expect := func(r *Reporter, when, want string, most int) {
		t.Helper()
		before := writes
		select {
		case <-r.wake:
			if _, err := r.beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		default:
		}
		got := ""
		for _, p := range get(t, api).Status.VolumeProblems {
			got += p.VolumeName + " " + p.Reason
			if len(p.Message) > LongestReason {
				t.Errorf("%s: got a message of %d bytes, want at most %d", when, len(p.Message), LongestReason)
			}
		}
		if got != want || writes-before != most {
			t.Errorf("%s: got %q with %d writes, want %q with %d", when, got, writes-before, want, most)
		}
	}
	saw(r, "")
	expect(r, "no problem", "", 0)
	saw(r, apiv1.ReasonFilesystemFrozen)
	expect(r, "seen once", "", 0)
	clock.Step(10 * time.Second)
	saw(r, apiv1.ReasonFilesystemFrozen)
	expect(r, "after ten seconds", "v FilesystemFrozen", 1)
	clock.Step(10 * time.Second)
	saw(r, apiv1.ReasonFilesystemFrozen)
	expect(r, "as before", "v FilesystemFrozen", 0)

	next, later := newReporter(t, api, newScanner(t, &mountList{}))
	later.SetTime(clock.Now())
	<-next.wake
	next.ReviewProblems()
	expect(next, "before the first write of another process", "v FilesystemFrozen", 0)
	if _, err := next.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(next, "after its first write", "v FilesystemFrozen", 0)
	saw(next, "")
	expect(next, "when it has ended", "", 1)
	later.Step(time.Hour)
	next.ReviewProblems()
	expect(next, "later", "", 0)
}

// A person unmounts what the message names, so the path of a kubelet's mount must be in it as it is.
func TestTheMessageOfAProblemKeepsAPath(t *testing.T) {
	t.Parallel()
	const path = "/var/lib/kubelet/pods/b4756d52-2b25-4d6d-a756-02f59fa412d2/volumes/kubernetes.io~csi/pvc-aaa00076/mount/below"
	long := plain("cannot unmount " + strings.Repeat("/long", 80) + ": below it, tmpfs is mounted at " + path)
	if !strings.HasSuffix(long, "mounted at "+path) || !strings.Contains(long, " ... ") {
		t.Errorf("got %q, want the path %s at its end, and dots where it is shortened", long, path)
	}
}
