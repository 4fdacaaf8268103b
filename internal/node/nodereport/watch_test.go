package nodereport

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

// start starts a Reporter and returns when it watches its object. The clock stands still.
func start(t *testing.T, api client.WithWatch) (*Reporter, *clocktesting.FakeClock) {
	t.Helper()
	watched := make(chan struct{}, 1)
	r, clock := newReporter(t, interceptor.NewClient(api, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, list, options...)
			select {
			case watched <- struct{}{}:
			default:
			}
			return w, err
		},
	}), newScanner(t, &mountList{}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-watched
	<-r.Scanned()
	return r, clock
}

// await returns the object once it is as wanted. The clock goes on by a second at most, less than
// an interval between heartbeats.
func await(t *testing.T, api client.Client, clock *clocktesting.FakeClock, what string,
	wanted func(*apiv1.AzDriverNode) bool) *apiv1.AzDriverNode {
	t.Helper()
	end := clock.Now().Add(time.Second)
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		node := &apiv1.AzDriverNode{}
		err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: nodeName}, node)
		if err == nil && wanted(node) {
			return node
		}
		select {
		case <-tick.C:
			if clock.Now().Before(end) {
				clock.Step(lookDelay)
			}
		case <-deadline:
			t.Fatalf("%s: got %+v, %v", what, node.Status, err)
		}
	}
}

// edit changes the status as another writer does.
// ask makes the controller's requests.
func ask(t *testing.T, api client.Client, requests *apiv1.NodeRequests) {
	t.Helper()
	for {
		node := get(t, api)
		before := node.DeepCopy()
		node.Spec.Requests = requests
		if err := kube.Patch(t.Context(), api, node, before); err == nil {
			return
		}
	}
}

func edit(t *testing.T, api client.Client, change func(*apiv1.AzDriverNodeStatus)) {
	t.Helper()
	for {
		node := get(t, api)
		before := node.DeepCopy()
		change(&node.Status)
		err := kube.PatchStatus(t.Context(), api, node, before)
		if err == nil {
			return
		}
	}
}

func TestAHeartbeatComesOnRequest(t *testing.T) {
	api := newAPI(t)
	_, clock := start(t, api)
	for range 3 {
		clock.Step(time.Second)
		now := clock.Now()
		ask(t, api, &apiv1.NodeRequests{HeartbeatTime: &metav1.MicroTime{Time: now}})
		answer := await(t, api, clock, "no answer to the request",
			func(d *apiv1.AzDriverNode) bool { return !d.Status.HeartbeatTime.Time.Before(now) })
		if got := answer.HeartbeatRequestedTime(); got == nil || !got.Time.Equal(now) {
			t.Errorf("the request: got %s, want it unchanged: %s", got, now)
		}
	}
}

// The controller's part of the bargain is in the condition: it probes, and it requests a heartbeat
// when a probe fails.
func TestHeartbeatsAreRareOnlyWhileProbesReachTheNode(t *testing.T) {
	api := newAPI(t)
	_, clock := start(t, api)
	probeable := func(status metav1.ConditionStatus, reason string) func(*apiv1.AzDriverNodeStatus) {
		return func(s *apiv1.AzDriverNodeStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{
				Type:   apiv1.NodeConditionProbeable,
				Status: status,
				Reason: reason,
			})
		}
	}
	for _, step := range []struct {
		name      string
		change    func(*apiv1.AzDriverNodeStatus)
		seconds   int32
		onRequest bool
	}{
		{"nothing is known of probes", func(*apiv1.AzDriverNodeStatus) {}, 30, false},
		{"probes reach the node", probeable(metav1.ConditionTrue, apiv1.ReasonAnswersProbes), 300, true},
		{"they do not", probeable(metav1.ConditionFalse, apiv1.ReasonProbesContradicted), 30, false},
		{"they do again", probeable(metav1.ConditionTrue, apiv1.ReasonAnswersProbes), 300, true},
		{"a controller that requests nothing says that they do", probeable(metav1.ConditionTrue, "ProbeAnswered"), 30, false},
	} {
		edit(t, api, step.change)
		await(t, api, clock, step.name, func(d *apiv1.AzDriverNode) bool {
			return d.Status.HeartbeatPeriodSeconds == step.seconds && d.Status.HeartbeatOnRequest == step.onRequest
		})
	}
}

func TestANodeThatCannotWatchPromisesNoAnswer(t *testing.T) {
	api := newAPI(t)
	refused := make(chan struct{}, 1)
	r, clock := newReporter(t, interceptor.NewClient(api, interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			select {
			case refused <- struct{}{}:
			default:
			}
			return nil, errors.New("forbidden")
		},
	}), newScanner(t, &mountList{}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	<-refused
	<-r.Scanned()
	edit(t, api, func(s *apiv1.AzDriverNodeStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type:   apiv1.NodeConditionProbeable,
			Status: metav1.ConditionTrue,
			Reason: apiv1.ReasonAnswersProbes,
		})
	})
	first := get(t, api)
	// The timer of the next watch runs beside that of the heartbeat, so one step of the clock could
	// come before the second is set.
	next := await(t, api, clock, "no heartbeat", func(d *apiv1.AzDriverNode) bool {
		clock.Step(time.Second)
		return d.Status.HeartbeatTime.After(first.Status.HeartbeatTime.Time)
	})
	if next.Status.HeartbeatOnRequest || next.Status.HeartbeatPeriodSeconds != 30 {
		t.Errorf("got a promise of %d s, on request %t; want 30 s and none", next.Status.HeartbeatPeriodSeconds,
			next.Status.HeartbeatOnRequest)
	}
}

// Between two heartbeats minutes can pass, in which an absence that another writer made must not
// stand.
func TestAReportThatAnotherWriterChangedIsRestoredAtOnce(t *testing.T) {
	api := newAPI(t)
	r, clock := start(t, api)
	for _, volume := range []string{"v", "w"} {
		if err := r.Announce(t.Context(), volume, 1, "/p"); err != nil {
			t.Fatal(err)
		}
	}
	want := func(d *apiv1.AzDriverNode) bool { return describe(d) == "v:1:Staging w:1:Staging" }
	edit(t, api, func(s *apiv1.AzDriverNodeStatus) { s.StagedVolumes = s.StagedVolumes[1:] })
	await(t, api, clock, "an entry was removed", want)
	edit(t, api, func(s *apiv1.AzDriverNodeStatus) { s.ReportDigest = "edited" })
	await(t, api, clock, "the digest was edited",
		func(d *apiv1.AzDriverNode) bool { return want(d) && d.Status.ReportDigest != "edited" })
	if err := api.Delete(t.Context(), get(t, api)); err != nil {
		t.Fatal(err)
	}
	await(t, api, clock, "the object was deleted", want)
}
