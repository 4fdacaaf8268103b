// Package statemetrics serves how many volumes and nodes there are in each state. Its number of series
// does not depend on how many volumes and nodes there are.
//
// A scrape reads the cache of the controller, and asks the API server nothing.
package statemetrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
)

var (
	volumesDesc = prometheus.NewDesc("azuredisk_volumes", "AzVolumes by status.state.", []string{"state"}, nil)
	oldestDesc  = prometheus.NewDesc("azuredisk_volume_state_oldest_timestamp_seconds",
		"When the volume that has been in the state for longest entered it.", []string{"state"}, nil)
	problemsDesc = prometheus.NewDesc("azuredisk_volume_problems",
		"AzVolumes with a problem that a node reports, by its reason.", []string{"reason"}, nil)
	nodesDesc = prometheus.NewDesc("azuredisk_nodes", "AzDriverNodes by condition and its status.",
		[]string{"condition", "status"}, nil)
	pausedDesc = prometheus.NewDesc("azuredisk_paused_objects",
		"AzVolumes that are paused, and AzDriverNodes without failover, by type.", []string{"type"}, nil)
	pausedOldestDesc = prometheus.NewDesc("azuredisk_paused_oldest_timestamp_seconds",
		"Since when the object that has been paused for longest is.", []string{"type"}, nil)
)

// states are those that have a series even if no volume is in them.
var states = []apiv1.VolumeState{
	apiv1.VolumePending, apiv1.VolumeCreating, apiv1.VolumeCreationFailed, apiv1.VolumeCreated,
	apiv1.VolumeUpdating, apiv1.VolumeUpdateFailed, apiv1.VolumeDeleting, apiv1.VolumeDeletionFailed,
}

// freshness is how old the metrics of a scrape may be. A list copies each object, and who scrapes may do so at
// any rate.
const freshness = 10 * time.Second

type collector struct {
	ctx       context.Context // Prometheus' interface has none
	reader    client.Reader
	namespace string
	now       func() time.Time

	mu      sync.Mutex
	counted time.Time
	metrics []prometheus.Metric
}

// New returns the metrics of the custom resources in a namespace, as a cache has them. ctx ends with the
// program. They are at most 10 s old.
func New(ctx context.Context, cached client.Reader, namespace string, now func() time.Time) prometheus.Collector {
	return &collector{ctx: ctx, reader: cached, namespace: namespace, now: now}
}

// Describe implements prometheus.Collector.
func (*collector) Describe(to chan<- *prometheus.Desc) {
	to <- volumesDesc
	to <- oldestDesc
	to <- problemsDesc
	to <- nodesDesc
	to <- pausedDesc
	to <- pausedOldestDesc
}

// Collect implements prometheus.Collector. What cannot be read has no series.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.counted.IsZero() || now.Sub(c.counted) >= freshness {
		c.counted, c.metrics = now, nil
		if err := c.collect(); err != nil {
			ctrl.LoggerFrom(c.ctx).Error(err, "no metrics of the state of volumes or nodes")
		}
	}
	for _, m := range c.metrics {
		to <- m
	}
}

func (c *collector) collect() error {
	add := func(d *prometheus.Desc, value float64, labels ...string) {
		c.metrics = append(c.metrics, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
	}
	var volumes apiv1.AzVolumeList
	if err := c.reader.List(c.ctx, &volumes, client.InNamespace(c.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list AzVolumes: %w", err)
	}
	for state, in := range tallyVolumes(volumes.Items) {
		add(volumesDesc, float64(in.objects), string(state))
		if in.objects > 0 {
			add(oldestDesc, float64(in.oldest.Unix()), string(state))
		}
	}
	for reason, n := range tallyProblems(volumes.Items) {
		add(problemsDesc, float64(n), reason)
	}
	var paused tally
	for i := range volumes.Items {
		paused.add(volumes.Items[i].Status.Conditions, apiv1.VolumeConditionPaused, metav1.ConditionTrue)
	}
	addPaused(add, "AzVolume", paused)
	var nodes apiv1.AzDriverNodeList
	if err := c.reader.List(c.ctx, &nodes, client.InNamespace(c.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list AzDriverNodes: %w", err)
	}
	for condition, in := range tallyNodes(nodes.Items) {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			add(nodesDesc, float64(in[status]), condition, string(status))
		}
	}
	var without tally
	for i := range nodes.Items {
		without.add(nodes.Items[i].Status.Conditions, apiv1.NodeConditionFailoverEnabled, metav1.ConditionFalse)
	}
	addPaused(add, "AzDriverNode", without)
	return nil
}

func addPaused(add func(*prometheus.Desc, float64, ...string), kind string, in tally) {
	add(pausedDesc, float64(in.objects), kind)
	if in.objects > 0 {
		add(pausedOldestDesc, float64(in.oldest.Unix()), kind)
	}
}

// tally is how many objects are in a state, and since when one of them is.
type tally struct {
	objects int
	oldest  time.Time
}

func (t *tally) count(since time.Time) {
	if t.objects == 0 || since.Before(t.oldest) {
		t.oldest = since
	}
	t.objects++
}

// add counts an object if one of its conditions has a status.
func (t *tally) add(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == status {
		t.count(c.LastTransitionTime.Time)
	}
}

func tallyVolumes(volumes []apiv1.AzVolume) map[apiv1.VolumeState]tally {
	all := map[apiv1.VolumeState]tally{}
	for _, state := range states {
		all[state] = tally{}
	}
	for i := range volumes {
		v := &volumes[i]
		state := v.Status.State
		if state == "" {
			state = apiv1.VolumePending
		}
		in := all[state]
		in.count(enteredState(v))
		all[state] = in
	}
	return all
}

// tallyProblems returns how many volumes have each problem. Causes of a later version have a series while a
// volume has them.
func tallyProblems(volumes []apiv1.AzVolume) map[string]int {
	all := map[string]int{}
	for _, reason := range problem.Reasons {
		all[reason] = 0
	}
	for i := range volumes {
		c := meta.FindStatusCondition(volumes[i].Status.Conditions, apiv1.VolumeConditionUsable)
		if c != nil && c.Status == metav1.ConditionFalse {
			all[c.Reason]++
		}
	}
	return all
}

// enteredState returns when the volume entered its state. A step that fails and is retried began when it
// was tried first, and a deletion when it was requested.
func enteredState(v *apiv1.AzVolume) time.Time {
	condition := apiv1.VolumeConditionReady
	switch v.Status.State {
	case apiv1.VolumeDeleting, apiv1.VolumeDeletionFailed:
		if v.DeletionTimestamp != nil {
			return v.DeletionTimestamp.Time
		}
	case apiv1.VolumeUpdating, apiv1.VolumeUpdateFailed:
		condition = apiv1.VolumeConditionUpdated
	default:
	}
	if c := meta.FindStatusCondition(v.Status.Conditions, condition); c != nil {
		return c.LastTransitionTime.Time
	}
	return v.CreationTimestamp.Time
}

// tallyNodes returns how many nodes have each status of each condition.
func tallyNodes(nodes []apiv1.AzDriverNode) map[string]map[metav1.ConditionStatus]int {
	all := map[string]map[metav1.ConditionStatus]int{}
	for i := range nodes {
		for _, c := range nodes[i].Status.Conditions {
			if all[c.Type] == nil {
				all[c.Type] = map[metav1.ConditionStatus]int{}
			}
			all[c.Type][c.Status]++
		}
	}
	return all
}
