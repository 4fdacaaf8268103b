// Package kube has what any program uses to talk to Kubernetes: reads that find or do not find an object,
// retries of a compare-and-swap, the pace of the calls, and the UID of the cluster.
package kube

import clientfeatures "k8s.io/client-go/features"

// BeginWithLists makes the caches of this program begin with lists, as before client-go 0.35, and
// not with streams of events (feature WatchListClient). Of custom resources, which are JSON, a
// stream is parsed three times: a start of the controller would take half as much processor time
// again. It is called before the first client is made.
func BeginWithLists() {
	clientfeatures.ReplaceFeatureGates(lists{clientfeatures.FeatureGates()})
}

type lists struct{ clientfeatures.Gates }

func (l lists) Enabled(f clientfeatures.Feature) bool {
	return f != clientfeatures.WatchListClient && l.Gates.Enabled(f)
}
