package outages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	maxAfterTakeoverSeconds = 20
	leastCrashPoints        = 12
	// crashPointsVariable holds the names of the only points to be tried, with commas, for
	// debugging one of them.
	crashPointsVariable = "CRASH_POINTS"
)

// seat is a workload and the nodes of a zone between which its failovers go.
type seat struct {
	workload scenario.Workload
	volume   observer.Volume
	// lost is the node that was lost last, and back when its power was given back.
	last scenario.Failover
	back time.Time
}

// crashRound is a failover in which the leader was killed.
type crashRound struct {
	Point string
	scenario.Failover
	// Killed is when it was seen that the leader had died, zero if it had not.
	Killed time.Time
	// TookOver is when the next leader took the lease. Same says that it is a new process in
	// the pod of the one that died, without its memory.
	TookOver time.Time
	Same     bool
	// Lost and Foreign are the records that the disk lacks, and that do not belong there.
	Lost, Foreign int
}

// after is the time from the new leader's lease to the pod Running; 0 if it ran before.
func (r crashRound) after() time.Duration { return max(scenario.Between(r.TookOver, r.Running), 0) }

// driver is the part of after that is not the kubelet's wait for its own next report of the volumes
// that it uses. It makes one every ten seconds, and how long it waits is chance.
func (r crashRound) driver() time.Duration { return max(r.after()-r.KubeletWait(), 0) }

// ControllerCrash is the scenario controller-crash.
var ControllerCrash = scenario.Scenario{
	Name:    "controller-crash",
	Summary: "the leading controller is killed at each point of a failover",
	Title:   "The controller dies in the middle of a failover",
	Latency: "realistic",
	Run:     controllerCrash,
}

// controllerCrash kills the controller's leader at each point that a failover passes,
// once each, and measures from the next leader's lease to the new pod Running.
func controllerCrash(ctx context.Context, e *scenario.Environment) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seats, err := reserveControllers(ctx, e)
	if err != nil {
		return err
	}
	c := &controllers{e}
	e.Progress("making %d pods that write to a disk with a replica", len(seats))
	for i := range seats {
		volumes, err := e.Start(ctx, seats[i].workload)
		if err != nil {
			return err
		}
		seats[i].volume = volumes[0]
	}
	points, err := learnPoints(ctx, e, c, &seats[0])
	if err != nil {
		return err
	}
	var rounds []crashRound
	for i, point := range points {
		r, err := crashAt(ctx, e, c, &seats[(i+1)%len(seats)], point)
		if err != nil {
			recordRounds(e, rounds)
			return fmt.Errorf("crash at %s: %w", point, err)
		}
		rounds = append(rounds, r)
		e.Progress("%2d of %d, %s: the pod ran %s after the new leader's lease, %s after the power cut",
			i+1, len(points), point, timeline.Round(r.after()), timeline.Round(r.Took()))
	}
	recordRounds(e, rounds)
	return endCrashes(ctx, e, seats, rounds)
}

// reserveControllers installs a driver that can be told where to die, with its
// controllers on nodes of their own, and returns a seat for each zone in which two
// nodes are left.
func reserveControllers(ctx context.Context, e *scenario.Environment) ([]seat, error) {
	zones := e.View.Zones()
	if len(zones) < 2 {
		return nil, errors.New("controller-crash needs two zones of at least two nodes each: bring the playground up with 4 nodes or, to be quicker, with 6")
	}
	var kept []string
	var seats []seat
	free := map[string]int{}
	for _, zone := range zones {
		free[zone] = len(e.View.Nodes(zone))
	}
	if free[zones[0]] > 2 && free[zones[1]] > 2 {
		for _, zone := range zones[:2] {
			nodes := e.View.Nodes(zone)
			kept = append(kept, nodes[len(nodes)-1])
			seats = append(seats, seat{workload: scenario.Workload{
				Name:           "writer-" + zone,
				MaxShares:      2,
				Replicas:       1,
				Zone:           zone,
				NoReservations: true,
			}})
		}
	} else {
		kept = e.View.Nodes(zones[1])
		seats = append(seats, seat{workload: scenario.Workload{
			Name:           "writer-" + zones[0],
			MaxShares:      2,
			Replicas:       1,
			Zone:           zones[0],
			NoReservations: true,
		}})
	}
	e.Metric("controller_nodes", strings.Join(kept, ", "))
	release := func(ctx context.Context) error {
		var failures []error
		for _, node := range kept {
			failures = append(failures, e.SetSpare(ctx, node, false))
		}
		return errors.Join(failures...)
	}
	e.RepairLater("let all nodes take pods", release)
	for _, node := range kept {
		if err := e.SetSpare(ctx, node, true); err != nil {
			return nil, err
		}
	}
	e.Progress("building a driver with crash points and installing it, its controllers on %s", strings.Join(kept, " and "))
	values, err := e.Cluster.CrashpointDriver(ctx, e.Progress)
	if err != nil {
		return nil, err
	}
	maps.Copy(values, map[string]any{"controller": spareValues(), "scheduler": spareValues()})
	_, err = e.ChangeDriver(ctx, "install the driver as it was", values)
	return seats, err
}

// spareValues place a component of the driver on the nodes that are kept for it.
func spareValues() map[string]any {
	return map[string]any{
		"nodeSelector": map[string]any{scenario.SpareController: "true"},
		"tolerations":  []any{map[string]any{"key": scenario.SpareController, "operator": "Exists"}},
	}
}

// learnPoints lets a failover end well and returns the points that it passed.
func learnPoints(ctx context.Context, e *scenario.Environment, c *controllers, s *seat) ([]string, error) {
	if only := os.Getenv(crashPointsVariable); only != "" {
		return strings.Split(only, ","), nil
	}
	if _, err := c.settle(ctx); err != nil {
		return nil, err
	}
	before := map[string]int{}
	for _, pod := range e.View.Controllers() {
		passed, err := c.passed(ctx, pod.Name)
		if err != nil {
			return nil, err
		}
		for _, p := range passed {
			before[pod.Name+p.Point] = p.Times
		}
	}
	e.Progress("a failover without a crash, to learn which points it passes")
	f, err := e.LossOf(ctx, s.workload, s.volume)
	if err != nil {
		return nil, err
	}
	if f.Fault, err = e.PowerOff(ctx, f.From); err != nil {
		return nil, err
	}
	if err := e.AwaitFailover(ctx, &f, scenario.FailoverTimeout); err != nil {
		return nil, err
	}
	e.Metric("total_seconds_without_a_crash", scenario.Seconds(f.Took()))
	var points []string
	for _, pod := range e.View.Controllers() {
		passed, err := c.passed(ctx, pod.Name)
		if err != nil {
			return nil, err
		}
		for _, p := range passed {
			if p.Times > before[pod.Name+p.Point] && !slices.Contains(points, p.Point) {
				points = append(points, p.Point)
			}
		}
	}
	slices.SortStableFunc(points, func(a, b string) int { return stage(a) - stage(b) })
	e.Progress("the failover took %s and passed %d points: %s", timeline.Round(f.Took()), len(points), strings.Join(points, ", "))
	return points, reviveLater(ctx, e, s, f)
}

// stage orders points by the part of the failover that they are in.
func stage(point string) int {
	part, _, _ := strings.Cut(point, "-")
	return slices.Index([]string{"failover", "fence", "unpublish", "publish"}, part)
}

// reviveLater gives the lost node its power back, and remembers for what to wait before
// the next failover.
func reviveLater(ctx context.Context, e *scenario.Environment, s *seat, f scenario.Failover) error {
	on, err := e.PowerOn(ctx, f.From)
	s.last, s.back = f, on
	return err
}

// awaitSeat blocks until the node that was lost last is used again.
func awaitSeat(ctx context.Context, e *scenario.Environment, s *seat) error {
	if s.back.IsZero() {
		return nil
	}
	_, err := e.AwaitBack(ctx, s.last.From, s.back, s.last)
	s.back = time.Time{}
	return err
}

// crashAt runs one round.
func crashAt(ctx context.Context, e *scenario.Environment, c *controllers, s *seat, point string) (crashRound, error) {
	r := crashRound{Point: point}
	if err := awaitSeat(ctx, e, s); err != nil {
		return r, err
	}
	leads, err := c.settle(ctx)
	if err != nil {
		return r, err
	}
	if r.Failover, err = e.LossOf(ctx, s.workload, s.volume); err != nil {
		return r, err
	}
	leader := e.View.DriverPod(leads)
	if leader == nil {
		return r, fmt.Errorf("the leader %s does not exist any more", leads)
	}
	alive := incarnation(leader)
	dead := func() bool {
		pod := e.View.DriverPod(leads)
		return pod == nil || incarnation(pod) != alive
	}
	if err := c.arm(ctx, leads, point); err != nil {
		return r, err
	}
	if r.Fault, err = e.PowerOff(ctx, r.From); err != nil {
		return r, err
	}
	err = e.View.Await(ctx, scenario.FailoverTimeout, "the leader dies or the pod runs elsewhere", func() bool {
		pod := e.View.Pod(s.workload.Pod())
		return dead() || pod != nil && pod.UID != r.Old && observer.IsRunning(pod)
	})
	if err != nil {
		return r, errors.Join(err, e.AwaitFailover(ctx, &r.Failover, time.Second))
	}
	if err := e.AwaitFailover(ctx, &r.Failover, scenario.FailoverTimeout); err != nil {
		return r, err
	}
	return r, endRound(ctx, e, c, s, &r, leads, dead())
}

// endRound measures, judges the records, and puts a new controller into the place of the
// one that died, so that the kubelet's back-off does not add up.
func endRound(ctx context.Context, e *scenario.Environment, c *controllers, s *seat, r *crashRound, leads string,
	died bool) error {
	if died {
		// The kubelet reports the death later; the lease shows when the leader ended.
		err := e.View.Await(ctx, scenario.SetUpTimeout, "another leader takes the lease", func() bool {
			var holder string
			holder, r.TookOver = e.View.LeaseHolder(scenario.ControllerLease)
			r.Same = holder == leads
			return r.TookOver.After(r.Fault)
		})
		if err != nil {
			return err
		}
		r.Killed = r.TookOver
	} else if err := c.disarm(ctx, leads); err != nil {
		return err
	}
	if err := reviveLater(ctx, e, s, r.Failover); err != nil {
		return err
	}
	if died {
		if err := c.remove(ctx, leads); err != nil {
			return err
		}
		if next, _ := e.View.LeaseHolder(scenario.ControllerLease); next != leads && c.attach() {
			if err := c.give(ctx, attacherLease, next); err != nil {
				return err
			}
		}
	}
	judged, err := e.JudgeHistory(ctx, s.workload)
	r.Lost, r.Foreign = len(judged.Lost), len(judged.Foreign)
	return err
}

// recordRounds makes a metric and a check of each round, and the picture of all.
func recordRounds(e *scenario.Environment, rounds []crashRound) {
	comparison := &timeline.Comparison{Title: "From the new leader's lease to the pod Running, by the point at which the old leader died"}
	var seconds, judged []float64
	for _, r := range rounds {
		after := scenario.Seconds(r.after())
		seconds, judged = append(seconds, after), append(judged, scenario.Seconds(r.driver()))
		e.Metric("after_new_leader_seconds_"+r.Point, after)
		e.Metric("kubelet_wait_seconds_"+r.Point, scenario.Seconds(r.KubeletWait()))
		e.Metric("total_seconds_"+r.Point, scenario.Seconds(r.Took()))
		comparison.Groups = append(comparison.Groups, timeline.Group{
			Title:   r.Point,
			Seconds: []float64{after},
			Good:    r.driver().Seconds() <= maxAfterTakeoverSeconds,
		})
		ends := !r.Killed.IsZero() && r.driver().Seconds() <= maxAfterTakeoverSeconds && r.Lost == 0 && r.Foreign == 0 &&
			!r.Proven.IsZero()
		e.Check("killed at "+r.Point, ends,
			"died %t; the next leader (%s) had the lease %s after the power cut; the pod ran on %s %s later, of which %s were the kubelet's wait; by the proof %s; %d records lost, %d foreign",
			!r.Killed.IsZero(), map[bool]string{
				true:  "the same pod's next process",
				false: "the other pod",
			}[r.Same], timeline.Round(scenario.Between(r.Fault, r.TookOver)),
			r.To, timeline.Round(r.after()), timeline.Round(r.KubeletWait()), r.ProofKind, r.Lost, r.Foreign)
	}
	e.Metric("points", len(rounds))
	e.Metric("after_new_leader_seconds_all", seconds)
	if len(seconds) > 0 {
		e.Metric("after_new_leader_seconds_slowest", slices.Max(seconds))
		e.Metric("after_new_leader_seconds_slowest_without_kubelet_wait", slices.Max(judged))
		e.Report.Comparison = comparison
	}
	if os.Getenv(crashPointsVariable) == "" {
		e.Check(fmt.Sprintf("there are at least %d points", leastCrashPoints), len(rounds) >= leastCrashPoints, "%d", len(rounds))
	}
}

func endCrashes(ctx context.Context, e *scenario.Environment, seats []seat, rounds []crashRound) error {
	var workloads []scenario.Workload
	for i := range seats {
		if err := awaitSeat(ctx, e, &seats[i]); err != nil {
			return err
		}
		workloads = append(workloads, seats[i].workload)
	}
	if err := e.JudgeAll(ctx, workloads...); err != nil {
		return err
	}
	if _, err := e.AddEvidence(ctx, e.Report.Started); err != nil {
		return err
	}
	if len(rounds) > 0 {
		slowest := slices.MaxFunc(rounds, func(a, b crashRound) int { return int(a.after() - b.after()) })
		e.Report.Figures = append(e.Report.Figures,
			slowest.Figure("The slowest: killed at "+slowest.Point, e.During(slowest.Failover)))
	}
	e.Report.Notes = []string{
		"A point is one line of the controller's code, in a build with the tag crashpoints. The process that leads, and whose sidecar asks it to attach, dies there as by SIGKILL.",
		"With VolumeAttachments a kubelet mounts a new volume only after its own next report of the volumes that it uses, every ten seconds. How long it waits for that is chance; it is in every number here except those that say so, and not in what is compared with the limit.",
	}
	e.Report.Summary = fmt.Sprintf("The controller's leader was killed at %d points of a failover, once each. The pod ran again at most %v s after the next leader had its lease. %s",
		len(rounds), e.Report.Metrics["after_new_leader_seconds_slowest"], e.RecordsLost())
	return nil
}
