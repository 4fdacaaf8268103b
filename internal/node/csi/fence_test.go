package csi_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/faulty"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	lostNode  = "node-a"
	lostEpoch = int64(6)
	recorded  = "11111111-1111-1111-1111-111111111111"
)

// lost makes a machine with a replica of a volume whose owner, which holds the reservation, is
// lost.
func lost(t *testing.T) (*machine, *memoryHost, *apiv1.AzVolumeAttachment) {
	t.Helper()
	host := newMemoryHost()
	host.Content = content{FS: provisioner.Filesystem{Type: "ext4", UUID: recorded}}
	m := newMachine(t, host, t.TempDir(), func(string) {})
	m.publish(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Spec.Disk.MaxShares = 3
		v.Status.Primary = &apiv1.Ownership{
			NodeName: lostNode,
			Epoch:    lostEpoch,
			State:    apiv1.OwnershipReleasing,
			Cause:    apiv1.CauseNodeLost,
		}
		v.Status.Filesystem = &apiv1.FilesystemRecord{Type: "ext4", UUID: recorded}
		a.Spec.Role, a.Spec.Epoch = apiv1.RoleReplica, 0
	})
	other := m.addAttachment(
		lostNode,
		func(a *apiv1.AzVolumeAttachment) { a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, lostEpoch },
	)
	reserveAs(t, host, lostNode, keyOf(t, lostNode, lostEpoch))
	if err := m.direct.Create(t.Context(), &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace,
		Name:      thisNode,
	}}); err != nil {
		t.Fatal(err)
	}
	return m, host, other
}

// run starts a plug-in that answers requests until stop is called.
func (m *machine) run() (s *csinode.Server, stop func()) {
	m.t.Helper()
	var report *nodereport.Reporter
	edit := m.edit
	m.edit = func(o *csinode.Options) {
		if edit != nil {
			edit(o)
		}
		report = o.Report
	}
	s = m.start()
	m.edit = edit
	ctx, cancel := context.WithCancel(m.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = report.Start(ctx) })
	m.metrics = prometheus.NewRegistry()
	running.Go(func() {
		if err := s.AnswerFences(ctx, m.metrics); err != nil {
			m.t.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	m.t.Cleanup(stop)
	return s, stop
}

// request writes the requests as the controller does.
func (m *machine) request(requests ...apiv1.FenceRequest) {
	m.t.Helper()
	for {
		node := m.node()
		node.Spec.Requests = &apiv1.NodeRequests{Fences: requests}
		if err := m.direct.Update(m.t.Context(), node); err == nil {
			return
		} else if m.t.Context().Err() != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) node() *apiv1.AzDriverNode {
	m.t.Helper()
	node := &apiv1.AzDriverNode{}
	if err := m.direct.Get(m.t.Context(), client.ObjectKey{Namespace: namespace, Name: thisNode}, node); err != nil {
		m.t.Fatal(err)
	}
	return node
}

// results waits until the node's results are as wanted.
func (m *machine) results(what string, wanted func([]apiv1.FenceResult) bool) []apiv1.FenceResult {
	m.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		results := m.node().Status.FenceResults
		if wanted(results) {
			return results
		}
		select {
		case <-tick.C:
		case <-deadline:
			m.t.Fatalf("%s: got results %+v", what, results)
		}
	}
}

func one(results []apiv1.FenceResult) bool  { return len(results) == 1 }
func none(results []apiv1.FenceResult) bool { return len(results) == 0 }

var lostRequest = apiv1.FenceRequest{VolumeName: volume, VolumeUID: volumeUID, NodeName: lostNode, Epoch: lostEpoch}

// provePreempted records the proof as the controller does.
func (m *machine) provePreempted(a *apiv1.AzVolumeAttachment) {
	m.t.Helper()
	a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: a.Spec.Epoch}
	if err := m.direct.Status().Update(m.t.Context(), a); err != nil {
		m.t.Fatal(err)
	}
}

func TestALostNodeIsFencedAndTheDiskIsLeftWhenItIsDetached(t *testing.T) {
	t.Parallel()
	m, host, other := lost(t)
	own := keyOf(t, thisNode, lostEpoch).FenceOnly()
	m.request(lostRequest)
	_, stop := m.run()
	result := m.results("the request was there before the start", one)[0]
	state := host.Shared.State()
	if result.Key != own.String() || result.PRGeneration != int64(state.Generation) || result.Message != "" ||
		result.NodeName != lostNode || result.Epoch != lostEpoch {
		t.Errorf("got result %+v, want key %s and generation %d", result, own, state.Generation)
	}
	if state.Holder != own || host.Shared.Allows(lostNode, true) {
		t.Errorf("the disk has %s, want it held by %s only", state, own)
	}
	stop()
	lists := make(chan struct{}, 100)
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			lists <- struct{}{}
			return c.List(ctx, list, opts...)
		},
	})
	_, stop = m.run() // the result outlives the process
	m.request()
	// each try lists the attachments once while there is no proof, and a try that ends the
	// registration lists them twice
	for range 3 {
		select {
		case <-lists:
		case <-time.After(20 * time.Second):
			t.Fatal("withdrawn, and the lost node has no proof: the node does not try to end its registration again")
		}
	}
	m.provePreempted(other)
	if got := m.results("withdrawn, and the lost node still has the disk", one)[0]; got != result {
		t.Errorf("after a restart: got result %+v, want %+v", got, result)
	}
	if err := m.direct.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	m.results("withdrawn, and the disk is detached from the lost node", none)
	if state := host.Shared.State(); len(state.Keys) != 0 {
		t.Errorf("the disk has %s, want no key", state)
	}
	stop()
}

func TestARequestIsAnsweredWhileThePluginRuns(t *testing.T) {
	t.Parallel()
	m, host, _ := lost(t)
	watched := m.watched()
	m.run()
	<-watched
	m.request(lostRequest)
	if result := m.results("the watch shows the request", one)[0]; result.Key == "" || host.Shared.Allows(lostNode, true) {
		t.Errorf("got result %+v, want a key", result)
	}
}

// Every read takes longer than the first try may.
func TestANodeThatIsMerelySlowFencesInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, host, _ := lost(t)
		m.api = interceptor.NewClient(m.api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
				opts ...client.GetOption) error {
				if _, is := obj.(*apiv1.AzVolume); is {
					select {
					case <-time.After(2 * time.Second):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		m.request(lostRequest)
		m.run()
		result := m.results("the second or third try has the time", one)[0]
		if result.Key == "" || host.Shared.Allows(lostNode, true) {
			t.Errorf("got result %+v, want a key", result)
		}
	})
}

func TestTriesToFenceAreCounted(t *testing.T) {
	t.Parallel()
	m, _, _ := lost(t)
	failed := false
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, isVolume := o.(*apiv1.AzVolume); isVolume && !failed {
				failed = true
				return errors.New("the API server does not answer")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	m.request(lostRequest)
	m.run()
	m.results("the second try succeeds", one)
	families, err := m.metrics.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("got %v, %v, want one metric", families, err)
	}
	got := map[string]uint64{}
	for _, series := range families[0].GetMetric() {
		got[series.GetLabel()[0].GetValue()] = series.GetHistogram().GetSampleCount()
	}
	if want := map[string]uint64{"Failed": 1, "Fenced": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v tries by result, want %v", got, want)
	}
}

func TestAFenceThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*machine, *memoryHost){
		"the ownership has a later epoch": func(m *machine, _ *memoryHost) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch++ })
		},
		"the device carries another filesystem": func(_ *machine, h *memoryHost) { h.Content.FS.UUID = "another" },
		"the lost node does not hold the reservation": func(m *machine, h *memoryHost) {
			if err := h.OnNode(lostNode).Unregister(m.t.Context(), memoryDevice, keyOf(m.t, lostNode, lostEpoch)); err != nil {
				m.t.Fatal(err)
			}
		},
		"this node has staged the volume": func(m *machine, _ *memoryHost) {
			record := nodereport.Record{
				VolumeName:  volume,
				VolumeID:    volumeID,
				BootID:      m.bootID,
				StagingPath: m.stagingPath(),
				Device:      memoryDevice,
				Block:       true,
			}
			if err := m.records.Put(record); err != nil {
				m.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, host, _ := lost(t)
			edit(m, host)
			kept := nodereport.Guard{VolumeName: volume, Key: keyOf(t, thisNode, 2).String()}
			expect.Must(t, m.records.PutGuard(kept)) // a reservation that this node keeps for another reason
			before := host.Shared.State().Generation
			m.request(lostRequest)
			m.run()
			if result := m.results("refused", one)[0]; result.Key != "" || result.Message == "" || result.Epoch != lostEpoch {
				t.Errorf("got result %+v, want a message and no key", result)
			}
			if state := host.Shared.State(); state.Generation != before {
				t.Errorf("the disk has %s, want it as before", state)
			}
			m.request()
			m.results("withdrawn", none)
			if got, _, err := m.records.Guard(volume); got != kept {
				t.Errorf("got the record %+v of a reservation, %v, want %+v", got, err, kept)
			}
		})
	}
}

func TestASecondRequestIsAnsweredByItsOwnResult(t *testing.T) {
	t.Parallel()
	m, _, _ := lost(t)
	m.request(lostRequest)
	m.run()
	m.results("the first request", one)
	second := lostRequest
	second.RequestTime = metav1.NewMicroTime(time.Unix(1, 0))
	m.request(second)
	result := m.results("the second request", func(results []apiv1.FenceResult) bool {
		return one(results) && results[0].RequestTime.Equal(&second.RequestTime)
	})[0]
	if result.Key == "" {
		t.Errorf("got result %+v, want a key", result)
	}
}

// A try whose access fails is repeated, and proves no more than one without a failure.
func TestAFenceSurvivesTheFailureOfEachAccess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit   func(*machine, *memoryHost)
		proved bool
	}{
		"the lost node is fenced": {edit: func(*machine, *memoryHost) {}, proved: true},
		"the ownership has a later epoch": {edit: func(m *machine, _ *memoryHost) {
			m.change(func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Status.Primary.Epoch++ })
		}},
		"the device carries another filesystem": {edit: func(_ *machine, h *memoryHost) { h.Content.FS.UUID = "another" }},
		"this node has staged the volume": {edit: func(m *machine, _ *memoryHost) {
			record := m.usedIn(m.bootID)
			record.Block = true
			m.must(m.records.Put(record))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for n, at := 1, "first"; at != "" && n < 60; n++ {
					m, host, other := lost(t)
					m.host = faulty.Host{Host: host, Faults: m.faults}
					own := keyOf(t, thisNode, lostEpoch).FenceOnly()
					test.edit(m, host)
					_, stop := m.run()
					time.Sleep(time.Second)
					m.faults.Arm(n)
					m.request(lostRequest)
					result := m.results("an answer", one)[0]
					if fenced := host.Shared.State().Holder == own; (result.Key != "") != test.proved || fenced != test.proved {
						t.Errorf("%s failed: got result %+v, and the reservation %s; want a proof: %t", m.faults.Failed(), result,
							host.Shared.State(), test.proved)
					}
					if at = m.faults.Failed(); test.proved {
						m.provePreempted(other)
					}
					m.must(m.direct.Delete(t.Context(), other))
					m.faults.Arm(n)
					m.request()
					m.results("withdrawn", none)
					if at == "" {
						at = m.faults.Failed()
					}
					m.faults.Arm(0)
					if state := host.Shared.State(); state.Registered(own) {
						t.Errorf("%s failed: the disk has %s, want no key of this node", at, state)
					}
					stop()
				}
			})
		})
	}
}

// Whether the disk has a key of this node is not known.
func TestTheResultOfARefusedFenceStaysUntilItsKeyIsLookedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, host, other := lost(t)
		host.Content.FS.UUID = "another"
		m.run()
		m.request(lostRequest)
		m.results("refused", one)
		m.must(m.direct.Delete(t.Context(), other))
		delete(host.Answering, memoryDevice)
		m.request()
		time.Sleep(time.Minute)
		m.results("withdrawn, and the device does not answer", one)
		host.Revive(memoryDevice)
		time.Sleep(time.Minute)
		m.results("the device answers", none)
	})
}

// The reservation of the lost node guarded against a node that was fenced before, and now the one
// of this node does.
func TestAFailedFenceKeepsTheReservationOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	m, host, other := lost(t)
	before := m.addAttachment("node-c", func(a *apiv1.AzVolumeAttachment) {
		a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, lostEpoch-1
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: lostEpoch - 1}
	})
	own, victim := keyOf(t, thisNode, lostEpoch).FenceOnly(), keyOf(t, lostNode, lostEpoch)
	host.Hook = func(step string) {
		if step == "reserve" && host.Shared.State().Holder == own { // the lost node's plug-in was about to register
			expect.Must(t, host.OnNode(lostNode).Register(t.Context(), memoryDevice, victim))
		}
	}
	m.request(lostRequest)
	m.run()
	if result := m.results("failed", one)[0]; result.Key != "" || result.Message == "" {
		t.Errorf("got result %+v, want a message and no key", result)
	}
	if state := host.Shared.State(); state.Holder != own || host.Shared.Allows("node-c", true) {
		t.Errorf("the disk has %s, want it held by %s", state, own)
	}
	expect.Must(t, errors.Join(m.direct.Delete(t.Context(), before), m.direct.Delete(t.Context(), other)))
	m.request()
	m.results("withdrawn", none)
	if state := host.Shared.State(); state.Registered(own) {
		t.Errorf("the disk has %s, want no key %s", state, own)
	}
}

// In a cluster without VolumeAttachments the kubelet calls NodeStageVolume before the publish,
// which waits for the fence.
func TestAStagingThatWaitsForThePublishDoesNotDelayTheFence(t *testing.T) {
	t.Parallel()
	m, _, _ := lost(t)
	m.edit = func(o *csinode.Options) { o.AwaitPublish = true }
	looked := make(chan struct{})
	var once sync.Once
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, isVolume := o.(*apiv1.AzVolume); isVolume {
				once.Do(func() { close(looked) })
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	s, _ := m.run()
	staged := make(chan error, 1)
	go func() { staged <- m.stage(s, mountCapability("ext4")) }()
	<-looked
	m.request(lostRequest)
	if result := m.results("a NodeStageVolume waits", one)[0]; result.Key == "" {
		t.Errorf("got result %+v, want a key", result)
	}
	m.change(func(v *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) {
		v.Status.Primary = &apiv1.Ownership{NodeName: thisNode, Epoch: lostEpoch + 1, State: apiv1.OwnershipHeld}
		a.Spec.Role, a.Spec.Epoch = apiv1.RolePrimary, lostEpoch+1
	})
	if err := <-staged; err != nil {
		t.Errorf("the NodeStageVolume: %v", err)
	}
}

func TestARequestThatIsWithdrawnBeforeItsResultWasWrittenIsLeft(t *testing.T) {
	t.Parallel()
	m, host, other := lost(t)
	tried := make(chan struct{})
	var once sync.Once
	m.api = interceptor.NewClient(m.api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object,
			patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if report, ok := o.(*apiv1.AzDriverNode); ok && len(report.Status.FenceResults) > 0 {
				once.Do(func() { close(tried) })
				return errors.New("the API server refuses")
			}
			return c.Status().Patch(ctx, o, patch, opts...)
		},
	})
	m.request(lostRequest)
	m.run()
	<-tried
	if err := m.direct.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	m.request()
	m.results("the fence-only key remains", func([]apiv1.FenceResult) bool { return len(host.Shared.State().Keys) == 0 })
}

// For NVMe the initiator is the Host Identifier, which the platform may give to all VMs.
func TestAFenceIsNoProofIfTheDiskTakesBothNodesForOne(t *testing.T) {
	t.Parallel()
	m, host, _ := lost(t)
	expect.Must(t, host.OnNode(lostNode).Unregister(t.Context(), memoryDevice, keyOf(t, lostNode, lostEpoch)))
	reserveAs(t, host, thisNode, keyOf(t, lostNode, lostEpoch)) // under the same name for the disk
	m.request(lostRequest)
	m.run()
	result := m.results("an answer", one)[0]
	if result.Key != "" || !strings.Contains(result.Message, "same initiator") {
		t.Errorf("got result %+v, want none that proves anything, because the disk takes both nodes for the same initiator",
			result)
	}
}

func TestAFenceOutlastsARestartAfterThePreemption(t *testing.T) {
	t.Parallel()
	m, host, _ := lost(t)
	pair := nodereport.Guard{
		VolumeName: volume,
		Key:        keyOf(t, thisNode, lostEpoch).FenceOnly().String(),
		Victim:     keyOf(t, lostNode, lostEpoch).String(),
	}
	disk, own := host.OnNode(thisNode), keyOf(t, thisNode, lostEpoch).FenceOnly()
	expect.Must(t, m.records.PutGuard(pair))
	expect.Must(t, errors.Join(disk.Register(t.Context(), memoryDevice, own),
		disk.PreemptAndAbort(t.Context(), memoryDevice, own, keyOf(t, lostNode, lostEpoch))))
	m.start().EndReservations(t.Context()) // before the plug-in has read the request
	m.request(lostRequest)
	m.run()
	if result := m.results("an answer", one)[0]; result.Key != own.String() {
		t.Errorf("got result %+v, want key %s, which has pre-empted the lost node before the restart", result, own)
	}
}

// The attachment of the node that fences is deleted, and created again, while the controller waits
// for the proof.
func TestWhatAFenceNeedsIsKeptWhileItIsRequested(t *testing.T) {
	t.Parallel()
	m, _, _ := lost(t)
	m.request(lostRequest)
	s, _ := m.run()
	m.results("fenced", one)
	expect.Must(t, m.direct.Delete(t.Context(), &apiv1.AzVolumeAttachment{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace,
		Name:      apiv1.AttachmentName(volume, thisNode),
	}}))
	s.EndReservations(t.Context())
	if _, found, err := m.records.Guard(volume); err != nil || !found {
		t.Errorf("got a record of the fence: %t, %v; want it kept", found, err)
	}
}
