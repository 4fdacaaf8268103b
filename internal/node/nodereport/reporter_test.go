package nodereport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	namespace = "azure-disk-csi"
	nodeName  = "node-a"
)

func newAPI(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	base := fakeapi.With(objects...).Build()
	// An API server gives every object a UID of its own.
	return interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.SetUID(uuid.NewUUID())
			return c.Create(ctx, obj, opts...)
		},
	})
}

// losingAnswers returns a client of an API server that makes the next status update and loses its
// answer, each time that loseAnswer was called.
func losingAnswers(api client.WithWatch) (losing client.WithWatch, loseAnswer func()) {
	lose := false
	losing = interceptor.NewClient(api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := c.Status().Patch(ctx, obj, patch, opts...); err != nil || !lose {
				return err
			}
			lose = false
			return errors.New("the answer was lost")
		},
	})
	return losing, func() { lose = true }
}

func newReporter(t *testing.T, api client.WithWatch, scanner Scanner) (*Reporter, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	return New(Options{
		Client:    api,
		Namespace: namespace,
		NodeName:  nodeName,
		Spec: apiv1.AzDriverNodeSpec{
			VMID:     "/subscriptions/s/vm",
			VMSize:   "Standard_D4s_v5",
			Location: "eastus",
			Zone:     "1",
		},
		Scanner:        scanner,
		SlowInterval:   30 * time.Second,
		FastInterval:   2 * time.Second,
		ProbedInterval: 5 * time.Minute,
		Clock:          clock,
		DriverVersion:  "v2",
	}), clock
}

func get(t *testing.T, api client.Client) *apiv1.AzDriverNode {
	t.Helper()
	var node apiv1.AzDriverNode
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: nodeName}, &node); err != nil {
		t.Fatal(err)
	}
	return &node
}

func TestTheFirstWriteMakesTheNodeAndCarriesTheScan(t *testing.T) {
	api := newAPI(t)
	mounts := &mountList{}
	scanner := newScanner(t, mounts)
	mounts.points = []provisioner.MountPoint{{Source: "/dev/sdc", Target: "/staging"}}
	if err := scanner.Records.Put(Record{
		VolumeName:  "left-over",
		Epoch:       4,
		StagingPath: "/staging",
		BootID:      bootID,
	}); err != nil {
		t.Fatal(err)
	}
	r, _ := newReporter(t, api, scanner)
	select {
	case <-r.Scanned():
		t.Error("the report counts as scanned before the first write")
	default:
	}
	if err := r.Announce(t.Context(), "new", 1, "/new"); err != nil {
		t.Fatal(err)
	}
	node := get(t, api)
	if node.Spec.VMID != "/subscriptions/s/vm" || node.Status.MountsScannedTime == nil || node.Status.BootID != bootID ||
		node.Status.HeartbeatTime == nil {
		t.Errorf("node = %+v", node)
	}
	if got := describe(node); got != "left-over:4:Staged new:1:Staging" {
		t.Errorf("entries = %q", got)
	}
	<-r.Scanned()
}

func TestAnEntryIsStagedUnstagedAndForgotten(t *testing.T) {
	api := newAPI(t)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	ctx := t.Context()
	steps := []struct {
		name string
		do   func() error
		want string
	}{
		{"unstage a volume without an entry", func() error { return r.BeginUnstage(ctx, "v") }, ""},
		{"announce", func() error { return r.Announce(ctx, "v", 1, "/p") }, "v:1:Staging"},
		{"confirm", func() error {
			return r.Confirm(ctx, apiv1.StagedVolume{
				VolumeName: "v",
				Epoch:      1,
				Filesystem: &apiv1.FilesystemRecord{Type: "ext4", UUID: "u"},
			})
		}, "v:1:Staged"},
		{"announce again under the same epoch", func() error { return r.Announce(ctx, "v", 1, "/p") }, "v:1:Staged"},
		{"announce under the next epoch", func() error { return r.Announce(ctx, "v", 2, "/p") }, "v:2:Staging"},
		{"begin to unstage", func() error { return r.BeginUnstage(ctx, "v") }, "v:2:Unstaging"},
		{"announce while unstaging", func() error { return r.Announce(ctx, "v", 2, "/p") }, "v:2:Staging"},
		{"forget", func() error { return r.Forget(ctx, "v") }, ""},
		{"forget again", func() error { return r.Forget(ctx, "v") }, ""},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if step.want == "" && step.name == "unstage a volume without an entry" {
			continue
		}
		if got := describe(get(t, api)); got != step.want {
			t.Errorf("after %s: %q, want %q", step.name, got, step.want)
		}
	}
}

func TestWritesOfOthersAndOfManyCallersAreNotLost(t *testing.T) {
	api := newAPI(t)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	var calls sync.WaitGroup
	errs := make(chan error, 40)
	for i := range 20 {
		calls.Go(func() { errs <- r.Announce(t.Context(), fmt.Sprintf("v%02d", i), 1, "/p") })
		// The controller writes the capacity into the same status.
		calls.Go(func() { errs <- writeCapacity(t.Context(), api, int32(i+1)) })
	}
	calls.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	node := get(t, api)
	if len(node.Status.StagedVolumes) != 20 {
		t.Errorf("%d entries, want 20", len(node.Status.StagedVolumes))
	}
	if err := writeCapacity(t.Context(), api, 16); err != nil {
		t.Fatal(err)
	}
	if err := r.Forget(t.Context(), "v00"); err != nil {
		t.Fatal(err)
	}
	if node := get(t, api); node.Status.Capacity == nil || node.Status.Capacity.MaxDataDisks != 16 {
		t.Error("the report overwrote the capacity")
	}
	if got, err := r.Capacity(t.Context()); err != nil || got == nil || got.MaxDataDisks != 16 {
		t.Errorf("Capacity = %v, %v", got, err)
	}
}

func writeCapacity(ctx context.Context, api client.Client, disks int32) error {
	for {
		var node apiv1.AzDriverNode
		if err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: nodeName}, &node); err != nil {
			return client.IgnoreNotFound(err)
		}
		node.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: disks, VMSize: node.Spec.VMSize}
		if err := api.Status().Update(ctx, &node); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func TestANodeThatWasDeletedIsMadeAgainWithAllEntries(t *testing.T) {
	api := newAPI(t)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	for _, volume := range []string{"v", "w"} {
		if err := r.Announce(t.Context(), volume, 1, "/p"); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Delete(t.Context(), get(t, api)); err != nil {
		t.Fatal(err)
	}
	// An announcement that changes nothing must notice too.
	if err := r.Announce(t.Context(), "w", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	if got := describe(get(t, api)); got != "v:1:Staging w:1:Staging" {
		t.Errorf("entries = %q", got)
	}
	if get(t, api).Status.MountsScannedTime == nil {
		t.Error("the new object does not count as scanned")
	}
}

func TestAWriteOfUnknownOutcomeIsReadBackBeforeTheNext(t *testing.T) {
	base := newAPI(t)
	api, loseAnswer := losingAnswers(base)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	if err := r.Announce(t.Context(), "v", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	loseAnswer()
	if err := r.Forget(t.Context(), "v"); err == nil {
		t.Error("the lost answer was taken for a success")
	}
	if err := r.Announce(t.Context(), "w", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	if got := describe(get(t, base)); got != "w:1:Staging" {
		t.Errorf("entries = %q", got)
	}
}

// Nothing repeats the call that clears an interrupted format.
func TestTheNextHeartbeatRemovesAnEntryThatTheCallLeft(t *testing.T) {
	api := newAPI(t)
	r, clock := newReporter(t, api, newScanner(t, &mountList{}))
	if err := r.Announce(t.Context(), "v", 1, "/p"); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Forget(ended, "v"); err == nil {
		t.Error("got no error of a call whose time had ended")
	}
	clock.Step(time.Minute)
	if _, err := r.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := describe(get(t, api)); got != "" {
		t.Errorf("after the next heartbeat: got entries %q, want none", got)
	}
}

// A stage gave up and its entry could not be removed; the next stage of the same epoch finds the
// entry as it wants it and writes nothing.
func TestAnEntryThatIsAnnouncedAgainStaysAtTheNextHeartbeat(t *testing.T) {
	base := newAPI(t)
	refuse := false
	r, clock := newReporter(t, interceptor.NewClient(base, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if refuse {
				return errors.New("no API server")
			}
			return c.Status().Patch(ctx, obj, patch, opts...)
		},
	}), newScanner(t, &mountList{}))
	if err := r.Announce(t.Context(), "v", 4, "/p"); err != nil {
		t.Fatal(err)
	}
	refuse = true
	if err := r.Forget(t.Context(), "v"); err == nil {
		t.Error("got no error of a write that was refused")
	}
	refuse = false
	if err := r.Announce(t.Context(), "v", 4, "/p"); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	if _, err := r.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := describe(get(t, base)), "v:4:Staging"; got != want {
		t.Errorf("after the next heartbeat: got entries %q, want %q", got, want)
	}
}

func TestAFailedScanLeavesMountsScannedTimeUnset(t *testing.T) {
	api := newAPI(t)
	mounts := &mountList{}
	scanner := newScanner(t, mounts)
	mounts.points = []provisioner.MountPoint{{Source: "/dev/sdc", Target: stagingPath(scanner)}}
	r, _ := newReporter(t, api, scanner)
	if err := r.Announce(t.Context(), "v", 1, "/p"); err == nil {
		t.Error("a volume was announced though the report is not complete")
	}
	if get(t, api).Status.MountsScannedTime != nil {
		t.Error("an incomplete report proves something")
	}
}

func TestHeartbeatsAreFastOnlyWhereAReplicatedPrimaryLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicated := &apiv1.AzVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "replicated"},
			Spec:       apiv1.AzVolumeSpec{MaxMountReplicaCount: 1},
		}
		plain := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plain"}}
		api := newAPI(t, replicated, plain)
		r, _ := newReporter(t, api, newScanner(t, &mountList{}))
		r.options.Clock = clock.RealClock{} // the bubble's
		r.SetReady(true, "Serving", "")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Start(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		after := func(d time.Duration) *apiv1.AzDriverNode {
			time.Sleep(d)
			synctest.Wait()
			return get(t, api)
		}
		first := after(time.Second)
		if first.Status.HeartbeatSeconds != 30 ||
			!meta.IsStatusConditionTrue(first.Status.Conditions, apiv1.NodeConditionPluginReady) {
			t.Errorf("first heartbeat = %+v", first.Status)
		}
		if !meta.IsStatusConditionFalse(first.Status.Conditions, apiv1.NodeConditionGuards) {
			t.Errorf("got the conditions %+v in the first heartbeat, want GuardsFencedNodes False", first.Status.Conditions)
		}
		if got := after(28 * time.Second); !got.Status.HeartbeatTime.Equal(first.Status.HeartbeatTime) {
			t.Errorf("a heartbeat at %s, 29 s after the first at the latest; want one every 30 s", got.Status.HeartbeatTime)
		}
		if got := after(2 * time.Second); got.Status.HeartbeatTime.Equal(first.Status.HeartbeatTime) {
			t.Errorf("no heartbeat within 31 s after %s", first.Status.HeartbeatTime)
		}
		r.Observe(plain)
		if err := r.Announce(ctx, "plain", 1, "/p"); err != nil {
			t.Fatal(err)
		}
		if got := get(t, api).Status.HeartbeatSeconds; got != 30 {
			t.Errorf("with a volume without replicas: every %d s, want 30", got)
		}
		// A volume that was not observed counts as replicated until the loop has read it.
		if err := r.Announce(ctx, "replicated", 1, "/p"); err != nil {
			t.Fatal(err)
		}
		announced := get(t, api)
		if announced.Status.HeartbeatSeconds != 2 {
			t.Errorf("with a replicated volume: every %d s, want 2", announced.Status.HeartbeatSeconds)
		}
		staged := after(5 * time.Second)
		if d := staged.Status.HeartbeatTime.Sub(announced.Status.HeartbeatTime.Time); d < 2*time.Second {
			t.Errorf("the last heartbeat within 5 s came %s after the report, want one every 2 s", d)
		}
		if err := r.Forget(ctx, "replicated"); err != nil {
			t.Fatal(err)
		}
		if got := after(3 * time.Second); got.Status.HeartbeatSeconds != 30 {
			t.Errorf("after the replicated volume left: every %d s, want 30", got.Status.HeartbeatSeconds)
		}
	})
}

func describe(node *apiv1.AzDriverNode) string {
	text := ""
	for i, entry := range node.Status.StagedVolumes {
		if i > 0 {
			text += " "
		}
		text += fmt.Sprintf("%s:%d:%s", entry.VolumeName, entry.Epoch, entry.Phase)
	}
	return text
}

// The kubelet may not call again after a call that failed: it forgets a volume that has no pod when
// it is restarted.
func TestAnUnstageThatWasBegunStaysBegunIfItsWriteFails(t *testing.T) {
	base := newAPI(t)
	failing := false
	r, _ := newReporter(t, interceptor.NewClient(base, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if failing {
				return apierrors.NewServiceUnavailable("the API server is gone")
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}), newScanner(t, &mountList{}))
	phase := func() apiv1.StagePhase { return get(t, base).Status.StagedVolumes[0].Phase }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.Confirm(t.Context(), apiv1.StagedVolume{VolumeName: "v", Epoch: 2}))
	failing = true
	if err := r.BeginUnstage(t.Context(), "v"); err == nil {
		t.Fatal("BeginUnstage succeeded without the API server")
	}
	failing = false
	must(r.Resized(t.Context(), "another", 1))
	if got := phase(); got != apiv1.PhaseUnstaging {
		t.Errorf("after the next write: got phase %s, want Unstaging", got)
	}
	must(r.Announce(t.Context(), "v", 2, "/v"))
	if got := phase(); got != apiv1.PhaseStaging {
		t.Errorf("after the next stage: got phase %s, want Staging", got)
	}
}
