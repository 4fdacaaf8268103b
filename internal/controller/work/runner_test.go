package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func attachment(name string) *apiv1.AzVolumeAttachment {
	return &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestAFenceDoesNotWaitForAttachesButOtherJobsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, began := New(ctx, clock.RealClock{}, 1), time.Now()
		ended := map[string]chan time.Duration{"attach": nil, "detach": nil, "fence": nil}
		for name := range ended {
			ended[name] = make(chan time.Duration, 1)
		}
		job := func(name string, took time.Duration) Func {
			return func(context.Context, func(provisioner.Operation)) (plan.Truth, error) {
				time.Sleep(took)
				ended[name] <- time.Since(began)
				return plan.Truth{}, nil
			}
		}
		r.Start(attachment("a"), plan.WorkAttach, job("attach", time.Minute))
		synctest.Wait()
		r.Start(attachment("b"), plan.WorkDetach, job("detach", time.Second))
		r.Start(attachment("c"), plan.WorkFence, job("fence", time.Second))
		for name, want := range map[string]time.Duration{"fence": time.Second, "attach": time.Minute, "detach": time.Minute + time.Second} {
			if got := <-ended[name]; got != want {
				t.Errorf("the %s ended after %v, want %v", name, got, want)
			}
		}
	})
}
