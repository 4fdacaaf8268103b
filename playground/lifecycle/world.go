package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

const (
	driverName = "disk.csi.azure.com"
	// zoneKey is the driver's topology key.
	zoneKey = "topology.disk.csi.azure.com/zone"
	// testLabel is on everything that a test makes.
	testLabel = "playground.azuredisk/lifecycle"

	diskVersion     = "2025-01-02"
	snapshotVersion = "2025-01-02"

	pollEvery = 100 * time.Millisecond
)

// What the driver and the snapshot-controller keep.
var (
	azVolumes        = driverResource("azvolumes")
	azAttachments    = driverResource("azvolumeattachments")
	azDriverNodes    = driverResource("azdrivernodes")
	snapshots        = snapshotResource("volumesnapshots")
	snapshotContents = snapshotResource("volumesnapshotcontents")
	snapshotClasses  = snapshotResource("volumesnapshotclasses")
)

func driverResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{
		Group:    driverName,
		Version:  "v1",
		Resource: name,
	}
}

func snapshotResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{
		Group:    "snapshot.storage.k8s.io",
		Version:  "v1",
		Resource: name,
	}
}

// world is what all tests share.
type world struct {
	*cluster.Cluster
	kube    kubernetes.Interface
	dyn     dynamic.Interface
	arm     *azure.Client
	image   string
	kubectl string
	// disturbed is the node on which the disturbing tests are.
	disturbed string
	started   time.Time
}

func newWorld(ctx context.Context, o Options) (*world, error) {
	w := &world{
		Cluster: o.Cluster,
		image:   o.Image.Ref,
		started: time.Now(),
	}
	if len(o.Cluster.Plan.Nodes) < 4 {
		return nil, errors.New("the tests need two nodes in each of two zones: bring a playground with 4 nodes up")
	}
	w.disturbed = o.Cluster.Plan.Nodes[len(o.Cluster.Plan.Nodes)-1].Name
	config, err := o.Cluster.RESTConfig()
	if err != nil {
		return nil, err
	}
	if w.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if w.dyn, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if w.kubectl, err = o.Cluster.Program("kubectl"); err != nil {
		return nil, err
	}
	if w.arm, err = o.Cluster.AzureClient(ctx); err != nil {
		return nil, err
	}
	return w, o.Cluster.LoadImage(ctx, o.Image.Tar)
}

// await blocks until reached returns nil or the context ends. Its last error says what was missing.
func await(ctx context.Context, what string, reached func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		err := reached(ctx)
		if over := new(overError); errors.As(err, &over) {
			return false, over.reason
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("wait until %s: %w (%w)", what, last, err)
	}
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

// overError ends an await: what is waited for will not be.
type overError struct{ reason error }

func (e *overError) Error() string { return e.reason.Error() }

// never makes await give up.
func never(format string, args ...any) error { return &overError{fmt.Errorf(format, args...)} }

// inventory names what can be left over.
func (w *world) inventory(ctx context.Context) (map[string]bool, error) {
	found, err := w.inCluster(ctx)
	if err != nil {
		return nil, err
	}
	resources, err := w.atAzure(ctx)
	maps.Copy(found, resources)
	return found, err
}

// inCluster names the driver's objects, PersistentVolumes, and namespaces of tests.
func (w *world) inCluster(ctx context.Context) (map[string]bool, error) {
	found := map[string]bool{}
	for _, resource := range []schema.GroupVersionResource{azVolumes, azAttachments, snapshotContents} {
		list, err := w.dyn.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for i := range list.Items {
			found[resource.Resource+" "+list.Items[i].GetName()] = true
		}
	}
	volumes, err := w.kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		found["persistentvolume "+v.Name] = true
	}
	namespaces, err := w.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: testLabel})
	if err != nil {
		return nil, err
	}
	for _, n := range namespaces.Items {
		found["namespace "+n.Name] = true
	}
	return found, nil
}

// atAzure names the disks and snapshots at Azure.
func (w *world) atAzure(ctx context.Context) (map[string]bool, error) {
	found := map[string]bool{}
	for _, kind := range []string{"disks", "snapshots"} {
		names, err := w.namesAtAzure(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found[kind+" at Azure: "+name] = true
		}
	}
	return found, nil
}

// namesAtAzure lists the names of the subscription's resources of that kind.
func (w *world) namesAtAzure(ctx context.Context, kind string) ([]string, error) {
	var names []string
	path := "/subscriptions/" + topology.SubscriptionID + "/providers/Microsoft.Compute/" + kind
	for path != "" {
		var page struct {
			Value []struct {
				Name string `json:"name"`
			} `json:"value"`
			Next string `json:"nextLink"`
		}
		if err := w.arm.Get(ctx, path, diskVersion, &page); err != nil {
			return nil, fmt.Errorf("list %s at Azure: %w", kind, err)
		}
		for _, v := range page.Value {
			names = append(names, v.Name)
		}
		path = page.Next
	}
	return names, nil
}

// awaitNothingBut waits until there is nothing but what was there before. It asks Azure only when
// nothing is left in the cluster, because it would use up Azure's quota of lists.
func (w *world) awaitNothingBut(ctx context.Context, before map[string]bool) error {
	for _, look := range []func(context.Context) (map[string]bool, error){w.inCluster, w.atAzure} {
		err := await(ctx, "what the tests made is gone", func(ctx context.Context) error {
			now, err := look(ctx)
			if err != nil {
				return err
			}
			maps.DeleteFunc(now, func(name string, _ bool) bool { return before[name] })
			if len(now) > 0 {
				return fmt.Errorf("still there: %s", strings.Join(slices.Sorted(maps.Keys(now)), ", "))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRights looks through the logs of the sidecars for refusals.
func (w *world) checkRights(ctx context.Context) error {
	pods, err := w.kube.CoreV1().Pods(cluster.DriverNamespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil {
		return err
	}
	var refused []error
	for _, pod := range pods.Items {
		for _, c := range pod.Spec.Containers {
			since := metav1.NewTime(w.started)
			log, err := w.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
				Container: c.Name,
				SinceTime: &since,
			}).DoRaw(ctx)
			if err != nil {
				return fmt.Errorf("read the log of %s: %w", c.Name, err)
			}
			for line := range strings.Lines(string(log)) {
				if strings.Contains(line, "is forbidden") {
					refused = append(refused, fmt.Errorf("%s in %s: %s", c.Name, pod.Name, strings.TrimSpace(line)))
					break
				}
			}
		}
	}
	return errors.Join(refused...)
}
