package simulation_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/azuredisk-csi/azuredisk/test/simulation"
)

var (
	seed       = flag.Uint64("seed", 0, "run the history of this seed only, and print it")
	first      = flag.Uint64("first", 1, "first seed")
	histories  = flag.Uint64("histories", enough, "number of histories")
	failures   = flag.Uint64("failures", 5, "stop after that many histories that broke a law")
	restores   = flag.Bool("restores", false, "restore all of the driver's objects now and then")
	everything = flag.Uint64("everything", math.MaxUint64,
		"histories up to this seed have all behaviours; later ones have none of: "+strings.Join(rare, ", "))
	states = flag.Bool("states", false, "count the states that the histories reach")
	flat   = flag.Float64("flat", 0,
		"stop before all histories are played, when the last 1,000 have added less than this percentage of the states")
	mutant  = flag.String("mutant", "", "law that the driver breaks, as in the constants of type Mutant")
	without = flag.String("without", "",
		"behaviours that are left out, separated by commas: "+strings.Join(simulation.Behaviours(), ", "))
)

// rare are the behaviours that are rare in a cluster.
var rare = []string{"kubelets", "faults", "edits"}

func TestMain(m *testing.M) {
	// Histories allocate much and keep nothing: a rare garbage collection saves time.
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// directory returns a directory in memory if the system has one, because the nodes sync their
// records to it at every change.
func directory(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{"/dev/shm", ""} {
		if made, err := os.MkdirTemp(parent, "simulation-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(made) })
			return made
		}
	}
	return t.TempDir()
}

func run(t *testing.T, seed uint64, options simulation.Options) (result simulation.Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { result = simulation.Run(seed, options) })
	return result
}

func TestHistories(t *testing.T) {
	options := simulation.Options{
		Directory: directory(t),
		Mutant:    simulation.Mutant(*mutant),
		Restores:  *restores,
		Without:   strings.Split(*without, ","),
	}
	if *states || *flat > 0 {
		options.States = &simulation.States{}
	}
	if *seed != 0 {
		onOneProcessor(t)
		result := run(t, *seed, options)
		fmt.Println(strings.Join(result.History, "\n"))
		if result.Violation != "" {
			t.Fatalf("seed %d: %s", *seed, result.Violation)
		}
		return
	}
	var next, played, steps, failed atomic.Uint64
	next.Store(*first - 1)
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1); n < *first+*histories && failed.Load() < *failures; n = next.Add(1) {
					if isFlat(options.States) {
						break
					}
					played.Add(1)
					options := options
					if n > *everything {
						options.Without = slices.Concat(options.Without, rare)
					}
					result := run(t, n, options)
					steps.Add(uint64(result.Steps))
					if result.Violation != "" {
						failed.Add(1)
						report(t, n, result, options)
					}
				}
			})
		}
	})
	took := time.Since(began)
	t.Logf("%d histories, %d steps in %s: %.0f steps per second", played.Load(), steps.Load(), took.Round(time.Millisecond),
		float64(steps.Load())/took.Seconds())
	if options.States != nil {
		known, percent := options.States.Share(lastHistories)
		t.Logf("%d states of a volume and a node, %.2f %% of them reached first by the last %d histories", known, percent,
			lastHistories)
	}
}

// lastHistories are those whose new states tell if more histories would reach others.
const lastHistories = 1000

func isFlat(states *simulation.States) bool {
	if *flat <= 0 {
		return false
	}
	_, percent := states.Share(lastHistories)
	return percent < *flat
}

// report prints the end of a failed history, and the command that prints all of it.
func report(t *testing.T, seed uint64, result simulation.Result, options simulation.Options) {
	t.Helper()
	last := result.History
	if len(last) > 40 {
		last = last[len(last)-40:]
	}
	t.Errorf("seed %d: %s\n%s\nreplay: go test ./test/simulation -run TestHistories -seed %d -without '%s' -v", seed,
		result.Violation, strings.Join(last, "\n"), seed,
		strings.Trim(strings.Join(options.Without, ","), ","))
}

// TestTheSimulationFindsBrokenLaws breaks the laws one by one, and expects that a history finds
// each.
func TestTheSimulationFindsBrokenLaws(t *testing.T) {
	// The rarest is found in one history of 350, and almost surely within this.
	const bound = 2000
	directory := directory(t)
	for name, broken := range map[string]struct {
		mutant simulation.Mutant
		law    string
		// every is which histories are tried: multiples of 5 for those with volumes of several
		// nodes.
		every uint64
		// has are the behaviours that show it, separated by commas; "" where none is needed.
		has string
	}{
		"an ownership is overwritten":                    {simulation.NoCompareAndSwap, "law 1", 1, ""},
		"nodes stage without ownership":                  {simulation.NoEpochCheck, "law 2", 1, ""},
		"nodes use what they have no share of":           {simulation.NoEpochCheck, " uses ", 5 * 19, "scenes"},
		"ownership is released without proof":            {simulation.NoProof, "law 3", 1, ""},
		"shares are taken without proof":                 {simulation.NoProof, " there is a proof (", 5, ""},
		"nodes that live are not cut off":                {simulation.NoFence, "law 3", 1, ""},
		"nodes that live are not cut off from one share": {simulation.NoFence, " there is a proof (", 5, ""},
		"a disk that is not listed counts as detached":   {simulation.AbsenceIsProof, "law 3", 31, "goalstate"},
		"a disk that is listed counts as attached":       {simulation.ListIsProof, "proof of attach", 31, "goalstate"},
		"a VM that is down keeps its disks":              {simulation.DownIsProof, "law 1", 29, "hibernation"},
		"a VM that is hibernated counts as down":         {simulation.HibernatedIsDown, "law 1", 29, "hibernation"},
		"a VM that is stopped counts as off":             {simulation.StoppedIsOff, "out of service", 29, "hibernation"},
		"a node that shuts down is cut off in its flush": {simulation.FlushUnseen, "a flush is cut off", 7 * 19,
			"kubelets,scenes"},
		"a pod is gone before its writes are on the disk": {simulation.Unsynced, "data", 7 * 19, "kubelets,scenes"},
		"a device that is released is not protected":      {simulation.Unprotected, "law", 43, "openers"},
		"a disk is changed while a node has it":           {simulation.ChangedInUse, "law", 1, ""},
		"a disk is changed before a release is proved":    {simulation.ChangedBeforeProof, "law", 1, ""},
		"nodes mount unannounced":                         {simulation.NoAnnouncement, "law", 1, ""},
		"a pod starts beside a process that outlived its pod": {simulation.PublishedUnsaid, "whose object is gone", 7 * 19,
			"kubelets,scenes"},
		"finalizers go before the disk is off":      {simulation.FinalizerFirst, "leak", 1, ""},
		"replicas are not counted":                  {simulation.ReplicasUncounted, "replicas", 1, ""},
		"disks are deleted with their AzVolumes":    {simulation.RecordIsDisk, "without a request", 1, ""},
		"a node names another node's VM as its own": {simulation.NodeNamesItsVM, "the world does not settle", 13, "liars"},
		"a dead kubelet is waited for": {
			simulation.KubeletIsThere, "the world does not settle", 7 * 19, "kubelets,scenes"},
		"a node forgets what it left behind": {
			simulation.FinalCode, "the world does not settle", 7 * 19, "kubelets,scenes"},
		"a call that was begun is not ended": {simulation.CallsAreRepeated, "the world does not settle", 7 * 19,
			"kubelets,scenes"},
		"a volume that the kubelet has forgotten stays staged": {simulation.KubeletUnstages, "the world does not settle", 7 * 19,
			"kubelets,scenes"},
		"a device that is held is not waited for":      {simulation.NoRecord, "law 3", 19, "scenes"},
		"a pod gets a mount that is dead":              {simulation.MountIsGood, "has a dead mount", 7 * 19, "kubelets,scenes"},
		"ownership begins with epoch 1 again":          {simulation.NoEpochsOfBefore, "the world does not settle", 17, "edits"},
		"an AzVolume that is kept serves no node":      {simulation.KeptIsGone, "the world does not settle", 17, "edits"},
		"a node waits for a disk that is off":          {simulation.StagingIsStaged, "the world does not settle", 11, "faults"},
		"a volume is staged with another one's device": {simulation.DevicesOfOthers, "identity", 7 * 11, "kubelets,faults"},
		"the reservation of another volume's disk is changed": {simulation.NoIdentity, "of another disk", 3 * 7 * 19,
			"kubelets,reservations,scenes"},
		"a reservation is taken without an abort": {simulation.PlainPreempt, "by pre-emption", 3 * 7 * 19,
			"kubelets,reservations,scenes"},
		"a volume is staged without a reservation": {simulation.NoReserve, "is not reserved", 3, "reservations"},
		"a key has no epoch": {
			simulation.KeysWithoutEpoch, "by pre-emption", 3 * 7 * 19, "kubelets,reservations,scenes"},
		"a reservation ends before the flush": {simulation.ReleaseBeforeFlush, "is not reserved", 3 * 7 * 19,
			"kubelets,reservations,scenes"},
		"a reservation ends before the detach": {simulation.LeavesEarly, "by pre-emption", 3 * 7 * 19,
			"kubelets,reservations,scenes"},
		"a key that was replaced counts as pre-empted": {simulation.ReplacedIsPreempted, "by pre-emption", 3 * 7 * 19 * 37,
			"kubelets,reservations,scenes,initiators"},
		"a key of a former path counts as a reservation": {simulation.KeyIsPath, "the world does not settle", 2 * 3 * 7 * 19,
			"kubelets,paths,reservations,scenes"},
		"the holder loses the disk": {
			simulation.NoHolder, "by pre-emption", 3 * 7 * 19, "kubelets,reservations,scenes,forgets"},
		"an entry that was taken out stays away": {simulation.EntriesStayAway, "law 3", 3 * 17, "edits"},
		"another cluster's VMs are not seen": {simulation.OtherClusterVMsUnseen, "production", 23,
			"clusters"},
		"a disk that was taken from the cluster is attached unasked": {simulation.AttachesUnasked, "production", 23, "clusters"},
		"a disk that was refused stays attached": {simulation.RefusedStaysAttached, "although another cluster uses it", 23,
			"clusters"},
		"a node is fenced in an announced pause": {simulation.NoPatience, "a pause is not a death", 41, "pauses"},
		"an announced pause has no end":          {simulation.PatienceWithoutEnd, "the world does not settle", 41, "pauses"},
		"switched-off nodes are not seen":        {simulation.SwitchedOffUnseen, "the world does not settle", 43, "nights"},
		"a restored status is believed":          {simulation.CopiesBelieved, "is detached from production", 23, "clusters"},
		"a pre-empted attachment gets a later epoch": {simulation.PreemptedRaised, "law 3: the pre-empted attachment",
			3 * 7 * 19, "kubelets,reservations,scenes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := simulation.Options{Directory: filepath.Join(directory, name), Mutant: broken.mutant}
			// Otherwise no device is taken for another one's.
			options.AnyLUN = broken.mutant == simulation.DevicesOfOthers
			options.Without = slices.DeleteFunc(simulation.Behaviours(),
				func(b string) bool { return slices.Contains(strings.Split(broken.has, ","), b) })
			keeps := options
			keeps.Mutant = ""
			others := map[string]int{}
			for n := *first; n < *first+bound; n++ {
				result := run(t, n*broken.every, options)
				// The same history must pass when the law is kept.
				if strings.Contains(result.Violation, broken.law) && run(t, n*broken.every, keeps).Violation == "" {
					t.Logf("found in seed %d after %d histories: %s (before that: %v)", n*broken.every, n-*first+1,
						result.Violation, others)
					return
				}
				if result.Violation != "" {
					others[result.Violation]++
				}
			}
			t.Errorf("not found in %d histories; found: %v", bound, others)
		})
	}
}

// TestASeedIsOneHistory runs histories twice.
func TestASeedIsOneHistory(t *testing.T) {
	onOneProcessor(t)
	options := simulation.Options{Directory: directory(t)}
	for n := *first; n < *first+min(*histories, 30); n++ {
		once, again := run(t, n, options).History, run(t, n, options).History
		if slices.Equal(once, again) {
			continue
		}
		i := 0
		for i < min(len(once), len(again)) && once[i] == again[i] {
			i++
		}
		t.Errorf("seed %d: line %d of the second run differs:\n got %s\nwant %s", n, i+1, around(again, i), around(once, i))
	}
}

// onOneProcessor makes a seed one history. Goroutines that one step wakes compete for the locks of
// the driver; on several processors their order is not the simulation's to decide.
func onOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// around is a line of a history, after the lines that lead to it.
func around(history []string, line int) string {
	return "\n" + strings.Join(history[max(0, line-3):min(line+3, len(history))], "\n")
}
