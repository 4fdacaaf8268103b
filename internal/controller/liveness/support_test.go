package liveness_test

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func metaName(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func newQueue() workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

// gauge is one metric of a registry.
type gauge struct {
	registry *prometheus.Registry
	name     string
}

// Describe describes nothing, as an unchecked collector does.
func (gauge) Describe(chan<- *prometheus.Desc) {}

// Collect passes the metric on.
func (g gauge) Collect(into chan<- prometheus.Metric) {
	families, err := g.registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == g.name {
			into <- prometheus.MustNewConstMetric(prometheus.NewDesc(g.name, f.GetHelp(), nil, nil), prometheus.GaugeValue,
				f.GetMetric()[0].GetGauge().GetValue())
		}
	}
}
