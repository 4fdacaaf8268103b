package attachdetach

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

// At the start each AzVolume is reconciled once, and not once more for each object that belongs to it.
func TestACreationIsAnEventForVolumesThatAreNotReconciledAnyway(t *testing.T) {
	r, _ := setUp(t, driver, volume("there", apiv1.AccessSingleNode)...)
	there, missing := named("there"), named("missing")
	for name, test := range map[string]struct {
		initial bool
		names   []string
		err     error
		want    []string
	}{
		"after the start":                          {false, []string{there, ""}, nil, []string{there}},
		"at the start, of a volume that is there":  {true, []string{there, ""}, nil, nil},
		"at the start, of one without an AzVolume": {true, []string{missing}, nil, []string{missing}},
		"at the start, of one that is there, and one without an AzVolume": {true, []string{there, missing}, nil,
			[]string{missing, there}},
		"at the start, of volumes that are not all found": {true, []string{there}, errors.New("not now"), []string{there}},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}))
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			volumes := func(context.Context, client.Object) ([]string, error) { return test.names, test.err }
			r.mapped("ns", volumes).Create(ctx, event.CreateEvent{Object: readyNode("a"), IsInInitialList: test.initial}, queue)
			var got []string
			for queue.Len() > 0 {
				request, _ := queue.Get()
				got = append(got, request.Name)
			}
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) {
				t.Errorf("got requests for %v, want %v", got, test.want)
			}
			if said := strings.Contains(strings.Join(log, ""), "volumes not found"); said != (test.err != nil) {
				t.Errorf("got log %q, want the error: %t", log, test.err != nil)
			}
		})
	}
	unreadable := errors.New("not now")
	r.Client = unreadableClient{r.Client, unreadable}
	if r.haveVolumes(t.Context(), []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: there}}}) {
		t.Error("got an AzVolume that cannot be read, want none")
	}
}

// unreadableClient fails each Get after it has filled the object.
type unreadableClient struct {
	client.Client
	err error
}

func (c unreadableClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return errors.Join(c.Client.Get(ctx, key, o, options...), c.err)
}

func TestAReportIsAnEventForTheVolumesThatItNames(t *testing.T) {
	r, _ := setUp(t, driver, volume("vol", apiv1.AccessSingleNode, "a")...)
	for o, want := range map[client.Object][]string{report("a", "vol"): {named("vol")}, readyNode("a"): nil} {
		if got, err := r.ofReport(t.Context(), o); err != nil || !slices.Equal(got, want) {
			t.Errorf("%T: got %v, %v, want %v", o, got, err, want)
		}
	}
}

func TestSetUpNeedsANameThatIsFree(t *testing.T) {
	mgr, err := ctrl.NewManager(&rest.Config{}, manager.Options{
		Scheme:  fakeapi.Scheme(),
		Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
	})
	expect.Must(t, err)
	r, _ := setUp(t, driver)
	expect.Must(t, r.SetUp(mgr, "ns"))
	if err := r.SetUp(mgr, "ns"); err == nil || !strings.Contains(err.Error(), "attaches and detaches") {
		t.Errorf("got error %v from the second one, want one that names the reconciler", err)
	}
}

// Operators read the log to learn what was attached and when.
func TestCallsThatSucceedAreLogged(t *testing.T) {
	for want, objects := range map[string][]client.Object{
		"the volume was published":   {pod("apps", "p", "a", inline(disk("rg", "vol")))},
		"the volume was unpublished": volume("vol", apiv1.AccessSingleNode, "a"),
		"the pod was failed":         onFullNode(limit(driver, new(int32))),
	} {
		var log []string
		ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}))
		r, publisher := setUp(t, driver, append(objects, readyNode("a"), report("a"))...)
		if want == "the pod was failed" {
			publisher.before = noSlot
		}
		_, _ = r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: named("vol")}})
		if !slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("got log %q, want a line with %q", log, want)
		}
	}
}
