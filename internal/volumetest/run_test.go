package volumetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/azuredisk-csi/azuredisk/internal/volumetest"
)

const namespace = "driver"

// cluster is an API server in memory that sets the status of pods and claims as the scheduler, the
// kubelet and the provisioner would.
type cluster struct {
	client.Client
	reclaim corev1.PersistentVolumeReclaimPolicy
	// phase of the pod that reads.
	phase corev1.PodPhase
	// nodes that the two pods are placed on.
	nodes map[string]string
}

func newCluster() *cluster {
	c := &cluster{
		reclaim: corev1.PersistentVolumeReclaimDelete,
		phase:   corev1.PodSucceeded,
		nodes:   map[string]string{"test-writer": "node-a", "test-reader": "node-b"},
	}
	c.Client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, under client.WithWatch, object client.Object, options ...client.CreateOption) error {
			switch o := object.(type) {
			case *corev1.PersistentVolumeClaim:
				o.Spec.VolumeName = "pv"
				pv := &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "pv"},
					Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: c.reclaim},
				}
				if err := under.Create(ctx, pv); err != nil {
					return err
				}
			case *corev1.Pod:
				o.Spec.NodeName = c.nodes[o.Name]
				o.Status = corev1.PodStatus{
					Phase:      corev1.PodRunning,
					Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				}
				if strings.Contains(o.Name, "reader") {
					o.Status = corev1.PodStatus{Phase: c.phase}
				}
				if o.Spec.NodeName == "" {
					o.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
						{
							Type:    corev1.PodScheduled,
							Status:  corev1.ConditionFalse,
							Reason:  corev1.PodReasonUnschedulable,
							Message: "0/1 nodes are available",
						},
					}}
				}
			}
			return under.Create(ctx, object, options...)
		},
		Delete: func(ctx context.Context, under client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if _, is := object.(*corev1.PersistentVolumeClaim); is && c.reclaim == corev1.PersistentVolumeReclaimDelete {
				if err := under.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}); err != nil {
					return err
				}
			}
			return under.Delete(ctx, object, options...)
		},
	})
	return c
}

func (c *cluster) run(t *testing.T, timeout time.Duration) (said []string, err error) {
	t.Helper()
	err = volumetest.Run(t.Context(), volumetest.Options{
		Client:       c,
		Clock:        clock.RealClock{},
		Namespace:    namespace,
		Name:         "test",
		Image:        "image",
		PullSecrets:  []string{"pull"},
		StorageClass: "fast",
		Size:         resource.MustParse("4Gi"),
		Timeout:      timeout,
		Say:          func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
	})
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
		if listErr := c.List(t.Context(), list); listErr != nil {
			t.Fatal(listErr)
		}
		if pods, is := list.(*corev1.PodList); is && len(pods.Items) > 0 {
			t.Errorf("got pods left over: %v, want none", pods.Items)
		}
		if claims, is := list.(*corev1.PersistentVolumeClaimList); is && len(claims.Items) > 0 {
			t.Errorf("got claims left over: %v, want none", claims.Items)
		}
	}
	return said, err
}

func TestAVolumeIsMovedAndDeleted(t *testing.T) {
	t.Parallel()
	said, err := newCluster().run(t, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"node node-a: a new volume of StorageClass fast", "node node-b: what was written is read",
		"the volume is deleted"} {
		if i >= len(said) || !strings.HasPrefix(said[i], want) {
			t.Errorf("got %q, want line %d to begin with %q", said, i, want)
		}
	}
}

func TestInAClusterWithOneNodeTheVolumeStays(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.nodes["test-reader"], c.nodes["test-reader-anywhere"] = "", "node-a"
	said, err := c.run(t, time.Minute)
	if err != nil || !slices.ContainsFunc(said, func(line string) bool {
		return strings.Contains(line, "stays on its node, because the pod fits on no other: 0/1 nodes are available")
	}) {
		t.Errorf("got %q, %v, want a line that the volume stays", said, err)
	}
}

func TestWhatIsMadeIsDeletedAfterAFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster)
		want   string
	}{
		"the pod that reads has failed": {func(c *cluster) { c.phase = corev1.PodFailed },
			`wait for pod test-reader on node "node-b", phase Failed: the pod has failed`},
		"the pod that reads never ends": {func(c *cluster) { c.phase = corev1.PodRunning }, "context deadline exceeded"},
		"the StorageClass keeps its disks": {func(c *cluster) { c.reclaim = corev1.PersistentVolumeReclaimRetain },
			"the StorageClass fast keeps its volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster()
			c.change(cluster)
			if _, err := cluster.run(t, 2*time.Second); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestAClaimThatCannotBeCreatedLeavesNothing(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	c := newCluster()
	c.Client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
	})
	if _, err := c.run(t, time.Minute); !errors.Is(err, refused) {
		t.Errorf("got %v, want %v", err, refused)
	}
}
