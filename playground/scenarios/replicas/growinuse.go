package replicas

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	// growths is how often each workload grows.
	growths = 5
	// growTimeout covers a change that Azure does not make at once.
	growTimeout = 5 * time.Minute
)

// GrowInUse is the scenario grow-in-use.
var GrowInUse = scenario.Scenario{
	Name: "grow-in-use",
	Summary: "claims of running pods grow: at a restart that is asked for, at a planned move, three claims at once, and that of a " +
		"PostgreSQL",
	Title:   "A claim of a running database grows",
	Latency: "realistic",
	Run:     growInUse,
}

// growth is one growth of the claims of a pod.
type growth struct {
	// pause is how long the pod could not write; grown is the time from its last write until all claims and
	// filesystems have the new size.
	pause, grown time.Duration
	// restarts is how many pods were needed.
	restarts int
}

func growInUse(ctx context.Context, e *scenario.Environment) error {
	zones := e.View.Zones()
	if len(zones) < 2 {
		return errors.New("grow-in-use needs two zones of at least two nodes each: bring the playground up with 4 nodes or more")
	}
	asked := scenario.Workload{Name: "asked", MaxShares: 2, Replicas: 1, Zone: zones[0]}
	moved := scenario.Workload{Name: "moved", MaxShares: 2, Replicas: 1, Zone: zones[1]}
	three := scenario.Workload{Name: "three", MaxShares: 2, Replicas: 1, Zone: zones[0], MoreClaims: 2}
	e.Progress("making pods with one claim and with three, on disks with a replica")
	volumes, err := e.Start(ctx, asked, moved, three)
	if err != nil {
		return err
	}
	var evicted, onMove []growth
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		evicted, err = growTimes(groupCtx, e, asked, volumes[0], applyPending)
		return err
	})
	group.Go(func() (err error) {
		onMove, err = growTimes(groupCtx, e, moved, volumes[1], move)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	together, err := growTimes(ctx, e, three, volumes[2], applyPending)
	if err != nil {
		return err
	}
	if err := e.JudgeAll(ctx, asked, moved, three); err != nil {
		return err
	}
	gap, err := growPostgres(ctx, e)
	if err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	text := []string{
		judgeGrowths(e, "grow-asked", "apply-pending", evicted),
		judgeGrowths(e, "grow-moved", "a planned move while a growth waits", onMove),
		judgeGrowths(e, "grow-three", "apply-pending with three claims", together),
		fmt.Sprintf("PostgreSQL: no commit for %.1f s.", gap.Seconds()),
	}
	e.Report.Summary = strings.Join(text, " ")
	return nil
}

// judgeGrowths checks the growths of a workload by the record of a figure, and returns a sentence about them.
func judgeGrowths(e *scenario.Environment, figure, what string, all []growth) string {
	var pauses, grown []float64
	again := 0
	for _, g := range all {
		pauses, grown = append(pauses, g.pause.Seconds()), append(grown, g.grown.Seconds())
		again += g.restarts - 1
	}
	key := strings.ReplaceAll(figure, "-", "_")
	e.Metric(key+"_write_pause_all", pauses)
	e.Metric(key+"_until_grown_all", grown)
	pause, until := timeline.Median(pauses), timeline.Median(grown)
	most, mostUntil := e.PodLimit(figure), e.PodLimit(figure+"-size")
	e.Check(fmt.Sprintf("%s: the pod cannot write for at most %g s", what, most), pause <= most, "median %.1f s of %s", pause,
		list(pauses))
	e.Check(fmt.Sprintf("%s: all claims have the new size after at most %g s", what, mostUntil), until <= mostUntil,
		"median %.1f s of %s", until, list(grown))
	e.Check(what+": one restart for each growth", again == 0, "%d more", again)
	return fmt.Sprintf("%s: no write for %.1f s (median; %.1f s at most), and the new size after %.1f s (%.1f s).", what, pause,
		slices.Max(pauses), until, slices.Max(grown))
}

// growTimes grows the claims of a workload several times. restart ends its pod.
func growTimes(ctx context.Context, e *scenario.Environment, w scenario.Workload, v observer.Volume,
	restart func(context.Context, *scenario.Environment, scenario.Workload, observer.Volume) error) ([]growth, error) {
	var all []growth
	for i := range growths {
		g, err := grow(ctx, e, w, v, restart)
		if err != nil {
			return all, fmt.Errorf("growth %d of %s: %w", i+1, w.Name, err)
		}
		e.Progress("%s, growth %d of %d: no write for %s, the new size after %s", w.Name, i+1, growths, timeline.Round(g.pause),
			timeline.Round(g.grown))
		all = append(all, g)
		for _, claim := range w.Claims() {
			if err := e.AwaitReplicas(ctx, w, observer.NewVolume(e.View.VolumeOfClaim(claim))); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func grow(ctx context.Context, e *scenario.Environment, w scenario.Workload, v observer.Volume,
	restart func(context.Context, *scenario.Environment, scenario.Workload, observer.Volume) error) (growth, error) {
	old := e.View.Pod(w.Pod())
	if old == nil {
		return growth{}, fmt.Errorf("pod %s is not there", w.Pod())
	}
	began := e.Say(timeline.Kubernetes, w.Name, "the claims are asked to grow", strings.Join(w.Claims(), ", "))
	for _, claim := range w.Claims() {
		if err := enlarge(ctx, e, claim); err != nil {
			return growth{}, err
		}
	}
	if err := restart(ctx, e, w, v); err != nil {
		return growth{}, err
	}
	for _, claim := range w.Claims() {
		if err := awaitSize(ctx, e, claim); err != nil {
			return growth{}, err
		}
	}
	grown := e.Say(timeline.Kubernetes, w.Name, "the claims have grown", "")
	pod := e.View.Pod(w.Pod())
	received, err := e.AwaitWriter(ctx, w, string(pod.UID))
	if err != nil {
		return growth{}, err
	}
	last, first := scenario.AroundStart(received.Acks, string(pod.UID))
	return growth{pause: first.Sub(last), grown: grown.Sub(last), restarts: writersSince(received.Acks, began) - 1}, nil
}

// writersSince counts the pods that have written since a time.
func writersSince(acks []recorder.Ack, since time.Time) int {
	writers := map[string]bool{}
	for _, a := range acks {
		if a.Time.After(since) {
			writers[a.Writer] = true
		}
	}
	return len(writers)
}

// enlarge asks for one GiB more.
func enlarge(ctx context.Context, e *scenario.Environment, name string) error {
	claims := e.Kube.CoreV1().PersistentVolumeClaims(e.Namespace)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read claim %s: %w", name, err)
	}
	size := claim.Status.Capacity[corev1.ResourceStorage]
	size.Add(resource.MustParse("1Gi"))
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size.String())
	if _, err := claims.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("enlarge claim %s: %w", name, err)
	}
	return nil
}

// awaitSize blocks until a claim, and so its filesystem, has the size that it asks for.
func awaitSize(ctx context.Context, e *scenario.Environment, name string) error {
	return e.Poll(ctx, growTimeout, 100*time.Millisecond, "claim "+name+" has grown", func(ctx context.Context) error {
		claim, err := e.Kube.CoreV1().PersistentVolumeClaims(e.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if has, wants := claim.Status.Capacity.Storage(), claim.Spec.Resources.Requests.Storage(); has.Cmp(*wants) < 0 {
			return fmt.Errorf("it has %s, and asks for %s", has, wants)
		}
		return nil
	})
}

// applyPending has the pods evicted by the command that users have for it.
func applyPending(ctx context.Context, e *scenario.Environment, w scenario.Workload, _ observer.Volume) error {
	for _, claim := range w.Claims() {
		if err := awaitPending(ctx, e, claim); err != nil {
			return err
		}
	}
	out, err := e.Plugin(ctx, "apply-pending", "claim", w.Claim(), "-n", e.Namespace)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		out = append(out, exit.Stderr...)
	}
	if err != nil {
		return fmt.Errorf("apply-pending claim %s: %w: %s", w.Claim(), err, out)
	}
	return nil
}

// move moves the pod when its growth waits.
func move(ctx context.Context, e *scenario.Environment, w scenario.Workload, v observer.Volume) error {
	if err := awaitPending(ctx, e, w.Claim()); err != nil {
		return err
	}
	_, err := e.Move(ctx, w, v)
	return err
}

// awaitPending blocks until the driver says that the growth of a claim waits for a restart.
func awaitPending(ctx context.Context, e *scenario.Environment, claim string) error {
	return e.View.Await(ctx, growTimeout, "the growth of "+claim+" waits for a restart", func() bool {
		pv := e.View.VolumeOfClaim(claim)
		if pv == nil {
			return false
		}
		az := e.View.AzVolume(observer.NewVolume(pv).Name)
		if az == nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(az.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			condition, ok := c.(map[string]any)
			return ok && condition["type"] == "Updated" && condition["reason"] == "DiskUpdatePending" &&
				condition["observedGeneration"] == az.GetGeneration()
		})
	})
}

// growPostgres grows the claim of a PostgreSQL under load, and returns for how long its client could not commit.
func growPostgres(ctx context.Context, e *scenario.Environment) (time.Duration, error) {
	leads, err := e.Leader(ctx)
	if err != nil {
		return 0, err
	}
	// The client's node is in another zone, so that each node of the database's zone can take the disk.
	zones := slices.DeleteFunc(e.View.Zones(), func(zone string) bool { return slices.Contains(e.View.Nodes(zone), leads.Node) })
	w := scenario.Workload{Name: "database", MaxShares: 2, Replicas: 1, Postgres: true, Zone: zones[0]}
	client := scenario.Client{Name: "client", Timeout: 2 * time.Second}
	e.Progress("making a PostgreSQL on a disk with a replica, and its client on %s", leads.Node)
	if err := e.ServePostgres(ctx, w); err != nil {
		return 0, err
	}
	volumes, err := e.Start(ctx, w)
	if err != nil {
		return 0, fmt.Errorf("%w (is PostgreSQL installed on this machine? hack/install-packages.sh postgresql:/usr/lib/postgresql)", err)
	}
	if err := e.StartClient(ctx, client, w, leads.Node); err != nil {
		return 0, err
	}
	began := e.Clock.Now()
	if err := enlarge(ctx, e, w.Claim()); err != nil {
		return 0, err
	}
	if err := applyPending(ctx, e, w, volumes[0]); err != nil {
		return 0, err
	}
	if err := awaitSize(ctx, e, w.Claim()); err != nil {
		return 0, err
	}
	if _, err := e.AwaitCommit(ctx, client, e.Clock.Now(), growTimeout); err != nil {
		return 0, err
	}
	gap := e.LongestGap(client, began, e.Clock.Now())
	commits, lost, err := e.LostCommits(ctx, client, w, leads.Node)
	if err != nil {
		return 0, err
	}
	e.Metric("postgres_seconds_without_commit", gap.Seconds())
	e.Metric("commits", commits)
	e.Check("no acknowledged commit is lost", len(lost) == 0, "of %d; %s", commits, strings.Join(lost, "; "))
	return gap, nil
}
