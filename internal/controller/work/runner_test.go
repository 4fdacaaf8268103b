package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
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
			return func(context.Context, func(provisioner.Operation)) (operation.Truth, error) {
				time.Sleep(took)
				ended[name] <- time.Since(began)
				return operation.Truth{}, nil
			}
		}
		r.Start(attachment("a"), operation.WorkAttach, nil, job("attach", time.Minute))
		synctest.Wait()
		r.Start(attachment("b"), operation.WorkDetach, nil, job("detach", time.Second))
		r.Start(attachment("c"), operation.WorkFence, nil, job("fence", time.Second))
		for name, want := range map[string]time.Duration{
			"fence":  time.Second,
			"attach": time.Minute,
			"detach": time.Minute + time.Second,
		} {
			if got := <-ended[name]; got != want {
				t.Errorf("the %s ended after %v, want %v", name, got, want)
			}
		}
	})
}

func TestAFenceSupersedesTheJobInFlight(t *testing.T) {
	for name, waits := range map[string]bool{"at the platform": false, "waiting for its turn": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := New(t.Context(), clock.RealClock{}, 1), attachment("a")
				if waits {
					r.Start(attachment("b"), operation.WorkAttach, nil, untilCancelled(nil))
					synctest.Wait()
				}
				returned, fenced := make(chan struct{}, 1), make(chan struct{})
				r.Start(a, operation.WorkAttach, nil, untilCancelled(returned))
				synctest.Wait()
				r.Start(a, operation.WorkFence, nil, func(context.Context, func(provisioner.Operation)) (operation.Truth, error) {
					if len(returned) == 0 && !waits {
						t.Error("the fence calls the platform before the attach has returned")
					}
					close(fenced)
					return operation.Truth{VMGone: true}, nil
				})
				<-fenced
				synctest.Wait()
				if len(returned) != 0 && waits {
					t.Error("the attach reached the platform although the fence superseded it")
				}
				if got := r.Job(a); got.Work != operation.WorkFence || got.Phase != operation.PhaseEnded || !got.Truth.VMGone {
					t.Errorf("got job %+v, want the fence that has ended", got)
				}
			})
		})
	}
}

func TestOnlyAFenceSupersedesAJobAndNoneSupersedesAFence(t *testing.T) {
	for _, works := range [][2]operation.Work{
		{operation.WorkAttach, operation.WorkDetach}, {operation.WorkDetach, operation.WorkAttach},
		{operation.WorkFence, operation.WorkFence}, {operation.WorkFence, operation.WorkAttach},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, a := New(t.Context(), clock.RealClock{}, 1), attachment("a")
			r.Start(a, works[0], nil, untilCancelled(nil))
			synctest.Wait()
			r.Start(a, works[1], nil, untilCancelled(nil))
			if got := r.Job(a); got.Work != works[0] || got.Phase != operation.PhaseBegun {
				t.Errorf("after a %s was started during a %s: got %+v, want the first one", works[1], works[0], got)
			}
		})
	}
}

// untilCancelled is a job that ends with its context; it then sends to returned unless that is nil.
func untilCancelled(returned chan<- struct{}) Func {
	return func(ctx context.Context, _ func(provisioner.Operation)) (operation.Truth, error) {
		<-ctx.Done()
		if returned != nil {
			returned <- struct{}{}
		}
		return operation.Truth{}, ctx.Err()
	}
}
