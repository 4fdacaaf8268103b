// Package metered counts and times the calls of a provisioner.Cloud, as a decorator of any of them.
package metered

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Options of New.
type Options struct {
	// Cloud that is measured.
	Cloud provisioner.Cloud
	// Registerer of the metrics.
	Registerer prometheus.Registerer
	// Clock that durations are taken from; the real one if nil.
	Clock clock.PassiveClock
}

// Cloud is a measured cloud.
type Cloud struct {
	next   provisioner.Cloud
	meters *meters
}

var _ provisioner.Cloud = (*Cloud)(nil)

type meters struct {
	clock    clock.PassiveClock
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

// New decorates a cloud and registers
//
//	azuredisk_cloud_call_duration_seconds{call,kind}  kind is the error kind, "" for a success, "context" for a caller who left
//	azuredisk_cloud_errors_total{call,kind,code}      code is the platform's
//
// A call as in "Disks.Create" ends when the platform has accepted; "Disks.Create/operation" is a Wait on its operation.
func New(options Options) (*Cloud, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	m := &meters{
		clock: options.Clock,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "azuredisk_cloud_call_duration_seconds", Help: "Duration of calls to the cloud by call and kind of error.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 300},
		}, []string{"call", "kind"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azuredisk_cloud_errors_total", Help: "Failed calls to the cloud by call, kind of error and the platform's code.",
		}, []string{"call", "kind", "code"}),
	}
	for _, c := range []prometheus.Collector{m.duration, m.errors} {
		if err := options.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register the cloud's metrics: %w", err)
		}
	}
	return &Cloud{next: options.Cloud, meters: m}, nil
}

// measure runs a call.
func measure[T any](m *meters, call string, do func() (T, error)) (T, error) {
	began := m.clock.Now()
	result, err := do()
	kind := string(provisioner.KindOf(err))
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		kind = "context"
	}
	m.duration.WithLabelValues(call, kind).Observe(m.clock.Since(began).Seconds())
	if err != nil {
		code := ""
		var e *provisioner.Error
		if errors.As(err, &e) {
			code = e.Code
		}
		m.errors.WithLabelValues(call, kind, code).Inc()
	}
	return result, err
}

// begin runs a call that begins an operation.
func begin(m *meters, call string, do func() (provisioner.Operation, error)) (provisioner.Operation, error) {
	op, err := measure(m, call, do)
	if err != nil {
		return nil, err
	}
	return operation{Operation: op, call: call + "/operation", meters: m}, nil
}

type operation struct {
	provisioner.Operation
	call   string
	meters *meters
}

// Wait implements provisioner.Operation.
func (o operation) Wait(ctx context.Context) error {
	_, err := measure(o.meters, o.call, func() (struct{}, error) { return struct{}{}, o.Operation.Wait(ctx) })
	return err
}

// Disks implements provisioner.Cloud.
func (c *Cloud) Disks() provisioner.Disks { return disks{c.next.Disks(), c.meters} }

// Snapshots implements provisioner.Cloud.
func (c *Cloud) Snapshots() provisioner.Snapshots { return snapshots{c.next.Snapshots(), c.meters} }

// Attachments implements provisioner.Cloud.
func (c *Cloud) Attachments() provisioner.Attachments {
	return attachments{c.next.Attachments(), c.meters}
}

// Instances implements provisioner.Cloud.
func (c *Cloud) Instances() provisioner.Instances { return instances{c.next.Instances(), c.meters} }

// SKUs implements provisioner.Cloud.
func (c *Cloud) SKUs() provisioner.SKUs { return skus{c.next.SKUs(), c.meters} }
