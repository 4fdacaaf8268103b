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
