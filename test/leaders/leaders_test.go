// Package leaders runs the controller plug-in over a real API server, while its leaders change.
package leaders

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

const size = "Standard_D4s_v5"

var single = map[string]string{"skuName": "Premium_LRS"}

// Volumes are created without a pause while controllers start, stop, and hand the lead over.
// Besides, before each handler is added to a cache, CSI is called for an object of the handler's
// kind: it is new to the handlers that a controller has already, and the next handler finds it in
// the cache. Each object must be reconciled.
func TestWhatIsMadeWhileLeadersChangeIsReconciled(t *testing.T) {
	const rounds, volumes = 3, 60
	names := []string{"lc-a", "lc-b", "lc-c", "lc-d", "lc-e", "lc-f", "lc-g", "lc-h"}
	var p *controlplane.ControlPlane
	var begun atomic.Bool
	var calls sync.WaitGroup
	var created, published, handlers atomic.Int32
	// called makes a call, and returns when the object that it makes is in the cache.
	called := func(cached client.Reader, object client.Object, name string, call func() error) {
		calls.Go(func() {
			if err := call(); err != nil {
				t.Errorf("call for %T %s: %v", object, name, err)
			}
		})
		key := client.ObjectKey{Namespace: p.Namespace, Name: name}
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				err := cached.Get(ctx, key, object)
				return err == nil, client.IgnoreNotFound(err)
			}); err != nil {
			t.Errorf("wait for %T %s in the cache: %v", object, name, err)
		}
	}
	beforeWatch := func(kind client.Object, cached client.Reader) {
		defer handlers.Add(1)
		if !begun.Load() {
			return
		}
		csi := p.CSI
		switch kind.(type) {
		case *apiv1.AzVolume:
			disk := fmt.Sprint("called-", created.Add(1))
			called(cached, &apiv1.AzVolume{}, p.VolumeName(disk), func() error {
				_, err := csi.CreateVolume(t.Context(), controlplane.CreateRequest(disk, single))
				return err
			})
		case *apiv1.AzVolumeAttachment:
			i := int(published.Add(1))
			disk, node := fmt.Sprint("published-", i), names[i%len(names)]
			called(cached, &apiv1.AzVolumeAttachment{}, apiv1.AttachmentName(p.VolumeName(disk), node), func() error {
				return p.Publish(t.Context(), p.DiskID(disk), node)
			})
		}
	}

	p = controlplane.New(t, controlplane.Options{
		Quiet:          true,
		LeaderElection: true,
		BeforeWatch:    beforeWatch,
	})
	for _, name := range names {
		p.AddNode(name, "1", size)
	}
	for i := range volumes {
		calls.Go(func() { p.Create(fmt.Sprint("published-", i+1), single) })
	}
	calls.Wait()
	stop := createVolumes(t, p)
	ofStart := handlers.Load()
	changed := func(starts int32) {
		expect.Eventually(t, "the controllers add their handlers", func() bool { return handlers.Load() >= starts*ofStart })
		calls.Wait()
	}
	begun.Store(true)
	for round := range int32(rounds) {
		p.Stop()
		p.Start()
		changed(2 + 2*round)
		p.HandOver()
		changed(3 + 2*round)
	}
	begun.Store(false)
	t.Logf("%d volumes were created without a pause; %d were created and %d published before a handler was added", stop(),
		created.Load(), published.Load())
	if created.Load() < 2*rounds || published.Load() < 2*rounds {
		t.Errorf("got %d volumes and %d attachments before handlers were added, want one for each handler of %d starts",
			created.Load(), published.Load(), 2*rounds)
	}
}

// createVolumes creates AzVolumes one after the other, as another copy of the controller does; at
// most 20 are not reconciled yet. The returned function ends this, waits until all are reconciled,
// and returns how many they are.
func createVolumes(t *testing.T, p *controlplane.ControlPlane) (stop func() int) {
	t.Helper()
	const prefix = "unpaused-"
	spec := p.Volume("published-1").Spec
	changes, err := p.Client.Watch(t.Context(), &apiv1.AzVolumeList{}, client.InNamespace(p.Namespace))
	expect.Must(t, err)
	unreconciled, ended, count := make(chan struct{}, 20), make(chan struct{}), make(chan int)
	go func() {
		reconciled := map[string]bool{}
		for e := range changes.ResultChan() {
			v, is := e.Object.(*apiv1.AzVolume)
			if is && strings.HasPrefix(v.Spec.Disk.Name, prefix) && v.Status.State == apiv1.VolumeCreated && !reconciled[v.Name] {
				reconciled[v.Name] = true
				<-unreconciled
			}
		}
	}()
	go func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				count <- i
				return
			case unreconciled <- struct{}{}:
			}
			v := &apiv1.AzVolume{Spec: *spec.DeepCopy()}
			v.Spec.Disk.Name = fmt.Sprint(prefix, i)
			v.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.VolumeName(v.Spec.Disk.Name)}
			if err := p.Client.Create(t.Context(), v); err != nil {
				t.Errorf("create AzVolume %s: %v", v.Name, err)
			}
		}
	}()
	return func() int {
		defer changes.Stop()
		close(ended)
		created := <-count
		expect.Eventually(t, "every volume is reconciled", func() bool { return len(unreconciled) == 0 })
		return created
	}
}
