// Package metrics registers the metrics of the parts of a program.
package metrics

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers the metrics of a part. A nil registerer registers none.
func Register(registerer prometheus.Registerer, part string, collectors ...prometheus.Collector) error {
	if registerer == nil {
		return nil
	}
	for _, c := range collectors {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("register metrics of %s: %w", part, err)
		}
	}
	return nil
}

// WhileLeading returns c with samples only from when leading is closed, which is when this process has
// the leader's lease: what a standby knows is not what the driver acts on. A nil channel is closed.
func WhileLeading(leading <-chan struct{}, c prometheus.Collector) prometheus.Collector {
	if leading == nil {
		return c
	}
	return whileLeading{Collector: c, leading: leading}
}

type whileLeading struct {
	prometheus.Collector
	leading <-chan struct{}
}

// Collect implements prometheus.Collector.
func (w whileLeading) Collect(to chan<- prometheus.Metric) {
	select {
	case <-w.leading:
		w.Collector.Collect(to)
	default:
	}
}

// Share is Register for a metric that several instances of a part use: it returns c, or the metric
// of its name that is already registered.
func Share[C prometheus.Collector](registerer prometheus.Registerer, part string, c C) (C, error) {
	err := Register(registerer, part, c)
	if twice, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := twice.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return c, err
}
