package controllerplugin

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// growing is a replicated volume in use on node pg-a, with a replica on pg-b, for which a growth and
// another tier have been requested.
func growing(t *testing.T, azure fake.Latency) (p *controlplane.ControlPlane, handle string) {
	t.Helper()
	p = controlplane.NewInMemory(t, controlplane.Options{Latency: azure})
	handle = p.CreateReplicated("pg-a", "pg-b")
	_, err := expand(t.Context(), p, handle, 20*gib)
	expectCode(t, err, codes.Aborted)
	expectCode(t, modify(t.Context(), p, handle, map[string]string{"tier": "P10", "tags": "a=b"}), codes.Aborted)
	if v := p.Volume("vol"); v.Status.SizeBytes != 10*gib || updated(v) == "" || len(p.AttachedTo("vol")) != 2 ||
		p.Cloud.CallCount(fake.DisksUpdate) != 0 {
		t.Fatalf("got %d bytes, %s, attached to %v, %d changes; want a change that waits", v.Status.SizeBytes, updated(v),
			p.AttachedTo("vol"), p.Cloud.CallCount(fake.DisksUpdate))
	}
	return p, handle
}

func TestAGrowthWaitsForTheNextMoveAndIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		azure := fake.Latency{Attach: 200 * time.Millisecond, Detach: 400 * time.Millisecond}
		p, handle := growing(t, azure)
		p.Unstage("vol", "pg-a")
		must(t, p.Unpublish(t.Context(), handle, "pg-a"))
		began := time.Now()
		must(t, p.Publish(t.Context(), handle, "pg-b"))
		p.Eventually("attached", attachedTo(p, "vol", "pg-b"))
		if took := time.Since(began); took < azure.Attach+azure.Detach || took > azure.Attach+azure.Detach+time.Second {
			t.Errorf("got the disk after %s, want it after a detach (%s) and an attach (%s)", took, azure.Detach, azure.Attach)
		}
		d := diskAt(t, p, "vol")
		if n := p.Cloud.CallCount(fake.DisksUpdate); n != 1 || d.SizeBytes != 20*gib || d.Tier != "P10" || d.Tags["a"] != "b" {
			t.Errorf("got %d changes, and the disk %+v; want one for all", n, d)
		}
		_, err := expand(t.Context(), p, handle, 20*gib)
		must(t, err)
		must(t, modify(t.Context(), p, handle, map[string]string{"tier": "P10", "tags": "a=b"}))
		p.Eventually("the replica is back", attachedTo(p, "vol", "pg-a", "pg-b"))
	})
}

// The pod is more important than the size.
func TestAPublishGoesOnWithoutAChangeThatAzureDoesNotMake(t *testing.T) {
	for name, test := range map[string]struct {
		azure func(p *controlplane.ControlPlane) (end func())
		want  time.Duration
		// refused is Azure's answer to the attach.
		refused string
	}{
		"a refusal": {func(p *controlplane.ControlPlane) func() {
			p.Cloud.FailNext(fake.DisksUpdate, 9, provisioner.Errorf(provisioner.InvalidArgument, "no"))
			return func() {}
		}, time.Second, ""},
		"a failure": {func(p *controlplane.ControlPlane) func() {
			p.Cloud.FailNext(fake.DisksUpdate, 9, provisioner.Errorf(provisioner.Unavailable, "no"))
			return func() {}
		}, time.Second, ""},
		"no answer": {func(p *controlplane.ControlPlane) func() { return p.Cloud.HoldAll(fake.DisksUpdate) },
			disk.HoldsFor + 15*time.Second, "another operation on disk"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, handle := growing(t, fake.Latency{})
				end := test.azure(p)
				defer end()
				p.Unstage("vol", "pg-a")
				must(t, p.Unpublish(t.Context(), handle, "pg-a"))
				began := time.Now()
				err := p.Publish(t.Context(), handle, "pg-b")
				for err != nil && strings.Contains(err.Error(), "is being changed first") && time.Since(began) < test.want {
					err = p.Publish(t.Context(), handle, "pg-b")
				}
				if test.refused == "" {
					must(t, err)
				} else if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("got %v, want Azure's answer to the attach: %s", err, test.refused)
				}
			})
		})
	}
}

// The disks of one pod are attached by one request.
func TestTheDisksThatANodeWaitsForAreAttachedTogether(t *testing.T) {
	for name, test := range map[string]struct {
		later time.Duration // how much longer the change of the second disk takes
		want  time.Duration // when the first volume is published
	}{
		"two changes that end one after the other": {time.Second, time.Second},
		"a change that takes too long":             {time.Minute, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := controlplane.NewInMemory(t, controlplane.Options{})
				p.AddNode("tg-a", "1", size)
				p.AddNode("tg-b", "1", size)
				handles := map[string]string{}
				for _, name := range []string{"one", "two"} {
					handles[name] = p.Create(name, map[string]string{"skuName": "Premium_LRS", "maxShares": "2"})
					p.StageOn(handles[name], name, "tg-a")
					_, err := expand(t.Context(), p, handles[name], 20*gib)
					expectCode(t, err, codes.Aborted)
				}
				first, second := make(chan struct{}), make(chan struct{})
				p.Cloud.Inject(fake.Fault{Method: fake.DisksUpdate, ID: handles["one"], Hold: first})
				p.Cloud.Inject(fake.Fault{Method: fake.DisksUpdate, ID: handles["two"], Hold: second})
				for _, name := range []string{"one", "two"} {
					p.Unstage(name, "tg-a")
					must(t, p.Unpublish(t.Context(), handles[name], "tg-a"))
				}
				published := make(chan time.Time, 1)
				go func() {
					must(t, p.Publish(t.Context(), handles["one"], "tg-b"))
					published <- time.Now()
				}()
				ended := make(chan error, 1)
				go func() { ended <- p.Publish(t.Context(), handles["two"], "tg-b") }()
				time.Sleep(time.Second) // both wait
				close(first)
				grown := time.Now()
				time.Sleep(test.later)
				close(second)
				if took := (<-published).Sub(grown); took < test.want-100*time.Millisecond || took > test.want+time.Second {
					t.Errorf("got the first volume %s after its disk has grown, want %s", took, test.want)
				}
				if err := <-ended; err != nil { // the call of the other one may have ended before its disk has grown
					expectCode(t, err, codes.Aborted)
				}
			})
		})
	}
}
