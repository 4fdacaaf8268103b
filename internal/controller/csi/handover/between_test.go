package handover_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Another client writes between two accesses of a call.
func TestACallDecidesAgainAfterAChange(t *testing.T) {
	t.Parallel()
	const promote, record, own = "patch AzVolumeAttachment", "patch/status AzVolumeAttachment", "patch/status AzVolume"
	published := on(held("a", 2), at("a", primary, 2))
	annotated := edit("a", func(a *apiv1.AzVolumeAttachment) { a.Annotations = map[string]string{"other": "client"} })
	publishedAgain := edit("a", func(a *apiv1.AzVolumeAttachment) { a.Status.Proof, a.Spec.Epoch = nil, 3 })
	created := func(w *world) { gone("a")(w); at("a", primary, multi, another)(w) }
	for name, test := range map[string]struct {
		given  []given
		at     string // the access before which the change is made
		change given
		do     act
		want   codes.Code
		says   string
		then   string
	}{
		"the attachment changes before it is a replica": {published, promote, annotated,
			unpublish("a"), codes.OK, "", "Released 2; a R2 Unstaged 2"},
		"the attachment is gone before it is a replica": {published, promote, gone("a"),
			unpublish("a"), codes.OK, "", "Released 2"},
		"the attachment is published again before it is a replica": {published, promote, publishedAgain,
			unpublish("a"), codes.Aborted, "no proof yet that node a", "Released 2; a P3"},
		"the attachment changes before the proof is recorded": {published, record, annotated,
			unpublish("a"), codes.OK, "", "Released 2; a R2 Unstaged 2"},
		"the attachment is created again before the proof is recorded": {on(multiNode, at("a", primary, multi)), record, created,
			unpublish("a"), codes.Aborted, "another call created the attachment again", "unowned; a P1"},
		"the lost attachment is created by another call": {on(held("a", 2), stages("a", 2)), "create AzVolumeAttachment",
			at("a", primary, 2), unpublish("a"), codes.Aborted, "reports the volume", "Releasing 2 a; a P2"},
		"the lost attachment of a multi-node volume is created by another call": {on(multiNode, stages("a", multi), has("a")),
			"create AzVolumeAttachment", at("a", primary, multi), unpublish("a"), codes.Aborted, "reports the volume",
			"unowned; a P1 deleted"},
		"the volume is deleted before it is owned": {nil, own, leaving,
			publish("a"), codes.NotFound, "is being deleted", "unowned"},
		"the AzVolume is gone before it is owned": {nil, own, noVolume,
			publish("a"), codes.NotFound, "was deleted during the call", "no AzVolume"},
		"the AzVolume is gone while the last attachment goes": {on(released(2), at("a", replica, 2, deleted)),
			"get AzVolumeAttachment", noVolume, publish("a"), codes.Aborted, "another call changed the ownership", "no AzVolume"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				w.before = func(access string) error {
					if access == test.at && test.change != nil {
						change := test.change
						test.change = nil
						change(w)
					}
					return nil
				}
				row{want: test.want, says: test.says, then: test.then}.check(w, test.do(w))
			}, test.given...)
		})
	}
}

// A report that the cache lacks costs no time.
func TestAPublishReadsAReportThatTheCacheLacks(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		began := time.Now()
		w.must(publish("new")(w))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("took %s, want no wait for the cache", took)
		}
	}, behind, func(w *world) { w.addNode("new") }, at("new", replica, 0), later(time.Second, caughtUp))
}

// What was not read, or not written, is no reason to go on.
func TestAFailedAccessDecidesNothing(t *testing.T) {
	t.Parallel()
	const record = "patch/status AzVolumeAttachment"
	lost := on(at("a", primary, 5), stages("a", 5))
	published := on(held("a", 2), at("a", primary, 2))
	annotated := edit("a", func(a *apiv1.AzVolumeAttachment) { a.Annotations = map[string]string{"other": "client"} })
	for name, test := range map[string]struct {
		given []given
		from  string // the access from which on another fails, and before which the attachment changes
		fails string
		do    act
		then  string
	}{
		"whether the last primary is Ready": {lost, "", "get Node", publish("b"), "unowned; a P5"},
		"the deletion of the last attachment": {
			append(on(notReady("a")), lost...), "", "delete AzVolumeAttachment", publish("b"), "unowned; a P5"},
		"the attachment that gets a proof": {published, record, "get AzVolumeAttachment", unpublish("a"), "Releasing 2 a; a P2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				failing := test.from == ""
				w.before = func(access string) error {
					switch {
					case access == test.from && !failing:
						failing = true
						annotated(w)
					case access == test.fails && failing:
						return apierrors.NewInternalError(errors.New(outOfOrder))
					}
					return nil
				}
				row{want: codes.Unavailable, says: outOfOrder, then: test.then}.check(w, test.do(w))
			}, test.given...)
		})
	}
}
