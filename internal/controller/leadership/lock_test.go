package leadership

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

// The chart's values.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	renewEvery    = 2 * time.Second
)

// lease is an API server with one lease.
type lease struct {
	mu      sync.Mutex
	current *coordinationv1.Lease
	version int
	holders []string // one after the other
}

// client is a controller's way to the lease. It counts the calls that reach the API server.
type client struct {
	coordinationv1client.LeaseInterface
	lease *lease

	mu            sync.Mutex
	cut           bool // no call reaches the API server
	reads, writes int
}

func (c *client) Leases(string) coordinationv1client.LeaseInterface { return c }

var resource = coordinationv1.Resource("leases")

func (c *client) reach(count *int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return errors.New("no route to host")
	}
	*count++
	return nil
}

func (c *client) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (c *client) calls() (reads, writes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads, c.writes
}

func (c *client) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := c.reach(&c.reads); err != nil {
		return nil, err
	}
	c.lease.mu.Lock()
	defer c.lease.mu.Unlock()
	if c.lease.current == nil {
		return nil, apierrors.NewNotFound(resource, "lease")
	}
	return c.lease.current.DeepCopy(), nil
}

func (c *client) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := c.reach(&c.writes); err != nil {
		return nil, err
	}
	c.lease.mu.Lock()
	defer c.lease.mu.Unlock()
	if c.lease.current != nil {
		return nil, apierrors.NewAlreadyExists(resource, "lease")
	}
	return c.lease.put(l), nil
}

func (c *client) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := c.reach(&c.writes); err != nil {
		return nil, err
	}
	c.lease.mu.Lock()
	defer c.lease.mu.Unlock()
	if l.ResourceVersion != c.lease.current.ResourceVersion {
		return nil, apierrors.NewConflict(resource, "lease", errors.New("the version is not the latest"))
	}
	return c.lease.put(l), nil
}

// put stores a lease. The caller holds mu.
func (l *lease) put(written *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	l.current = written.DeepCopy()
	l.current.ResourceVersion = strconv.Itoa(l.version)
	if holder := *written.Spec.HolderIdentity; len(l.holders) == 0 || l.holders[len(l.holders)-1] != holder {
		l.holders = append(l.holders, holder)
	}
	return l.current.DeepCopy()
}

func (l *lease) history() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.holders...)
}

// contender is a controller that wants to lead.
type contender struct {
	client   *client
	identity string
	led      chan struct{} // closed when it leads

	mu         sync.Mutex
	judgements map[string]nodehealth.Judgement
	superseded string
}

func (c *contender) judge(node string, v nodehealth.Judgement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judgements[node] = v
}

func (c *contender) by() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.superseded
}

// contend starts the real elector of a controller on a node.
func contend(ctx context.Context, t *testing.T, l *lease, node string) *contender {
	t.Helper()
	c := &contender{
		client:     &client{lease: l},
		identity:   Identity("pod-on-"+node, node, "uid"),
		led:        make(chan struct{}),
		judgements: map[string]nodehealth.Judgement{},
	}
	ctx, stop := context.WithCancel(ctx)
	lock := New(Options{
		Leases:     c.client,
		Namespace:  "ns",
		Name:       "lease",
		Identity:   c.identity,
		RenewEvery: renewEvery,
		Clock:      clock.RealClock{},
		Log:        logr.Discard(),
	})
	lock.Health = func(node string) nodehealth.Judgement {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.judgements[node]
	}
	lock.Superseded = func(by string) {
		c.mu.Lock()
		c.superseded = by
		c.mu.Unlock()
		stop()
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     LookEvery(renewEvery),
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(c.led) },
			OnStoppedLeading: func() {},
		},
	})
	expect.Must(t, err)
	go func() {
		defer stop()
		elector.Run(ctx)
	}()
	return c
}

// inElection runs a test with a leader on the node old and a standby on the node next, in virtual
// time.
func inElection(t *testing.T, test func(ctx context.Context, l *lease, old, next *contender)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		l := &lease{}
		old := contend(ctx, t, l, "old")
		<-old.led
		next := contend(ctx, t, l, "next")
		time.Sleep(30 * time.Second)
		test(ctx, l, old, next)
	})
}

var lost = nodehealth.Judgement{State: nodehealth.Lost}

func TestAStandbyLeadsSoonAfterItsVerdictOnTheLeadersNode(t *testing.T) {
	for range 20 { // the electors' pauses are random
		inElection(t, func(_ context.Context, _ *lease, old, next *contender) {
			old.client.setCut(true)
			cut := time.Now()
			time.Sleep(5 * time.Second)
			next.judge("old", lost)
			select {
			case <-next.led:
			case <-time.After(time.Minute):
				t.Fatal("the standby does not lead a minute after the leader was lost")
			}
			if took := time.Since(cut); took > 7*time.Second {
				t.Errorf("the standby leads %v after the power cut, want at most 2s after the node was found lost at 5s", took)
			}
		})
	}
}

func TestAnOrdinaryExpiryNeedsNoVerdict(t *testing.T) {
	inElection(t, func(_ context.Context, _ *lease, old, next *contender) {
		old.client.setCut(true)
		cut := time.Now()
		<-next.led
		if took := time.Since(cut); took < renewDeadline+renewEvery-2*time.Second || took > leaseDuration+2*renewEvery {
			t.Errorf("the standby leads %v after the leader was cut off, want about the lease's %v", took, leaseDuration)
		}
	})
}

func TestAWrongVerdictTakesNoLeaseFromALeaderThatRenewsIt(t *testing.T) {
	inElection(t, func(_ context.Context, l *lease, old, next *contender) {
		next.judge("old", lost)
		time.Sleep(10 * time.Minute)
		if got := l.history(); len(got) != 1 || got[0] != old.identity {
			t.Errorf("got leaders %q, want %q only", got, old.identity)
		}
	})
}

func TestALeaderWhoseLeaseWasTakenStopsAndTheLeaseStaysWhereItIs(t *testing.T) {
	inElection(t, func(ctx context.Context, l *lease, old, next *contender) {
		old.client.setCut(true)
		time.Sleep(5 * time.Second)
		next.judge("old", lost)
		<-next.led
		old.client.setCut(false)
		time.Sleep(renewEvery + time.Second)
		if got := old.by(); got != next.identity {
			t.Errorf("%v after its way to the API server was back the old leader was superseded by %q, want by %q",
				renewEvery+time.Second, got, next.identity)
		}
		again := contend(ctx, t, l, "old") // its container is started again, and the node is still thought lost
		again.judge("next", nodehealth.Judgement{State: nodehealth.Healthy})
		time.Sleep(10 * time.Minute)
		if got := l.history(); len(got) != 2 || got[1] != next.identity {
			t.Errorf("got leaders %q, want %q and then %q only", got, old.identity, next.identity)
		}
	})
}

func TestLookingOftenCostsTheAPIServerNothing(t *testing.T) {
	inElection(t, func(_ context.Context, _ *lease, old, next *contender) {
		_, writesBefore := old.client.calls()
		readsBefore, _ := next.client.calls()
		const periods = 300
		time.Sleep(periods * renewEvery)
		_, writes := old.client.calls()
		reads, _ := next.client.calls()
		if writes -= writesBefore; writes > periods+1 || writes < periods*3/4 {
			t.Errorf("the leader wrote the lease %d times in %d periods", writes, periods)
		}
		if reads -= readsBefore; reads > periods+1 {
			t.Errorf("the standby read the lease %d times in %d periods", reads, periods)
		}
	})
}

func TestALeadersIdentityNamesItsNode(t *testing.T) {
	t.Parallel()
	for identity, want := range map[string]string{
		Identity("controller-7d-x2", "node-1.example", "6f1c-11"): "node-1.example",
		Identity("controller-7d-x2", "", "6f1c-11"):               "",
		"of-an-earlier-version_6f1c-11":                           "",
		"":                                                        "",
	} {
		if got := nodeOf(identity); got != want {
			t.Errorf("%q: got node %q, want %q", identity, got, want)
		}
	}
}
