package scheduler

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// observer has the inputs of the decisions; *View implements it.
type observer interface {
	// Volumes returns the pod's volumes that are the driver's.
	Volumes(ctx context.Context, pod *corev1.Pod) ([]Volume, error)
	// Nodes calls use with the judgement of nodes for a pod with the volumes. use must not keep it.
	Nodes(ctx context.Context, volumes []Volume, use func(Nodes)) error
}

// extender answers kube-scheduler over HTTP: POST /filter and /prioritize, and what healthHandler
// answers.
type extender struct {
	Observer observer
	// Ready says that the observer knows the cluster. It may wait a moment, no longer than ctx, for
	// that to be so. Until then a pod whose volumes may be the driver's gets no answer.
	Ready func(ctx context.Context) bool
	// Accepting is what /readyz says: Ready, and not about to stop.
	Accepting func() bool
	// MaxRequestBytes bounds a request's body.
	MaxRequestBytes int64
	Metrics         *metrics
	Clock           clock.PassiveClock
}

// handler returns the handler for kube-scheduler. It answers every client: the answers name the nodes
// that have the disks of any claim.
func (e *extender) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /filter", e.timed("filter", e.filter))
	mux.HandleFunc("POST /prioritize", e.timed("prioritize", e.prioritize))
	e.handleProbes(mux)
	return mux
}

// healthHandler returns the handler for probes: GET /healthz and /readyz.
func (e *extender) healthHandler() http.Handler {
	mux := http.NewServeMux()
	e.handleProbes(mux)
	return mux
}

func (e *extender) handleProbes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", e.readyz)
}

func (e *extender) readyz(w http.ResponseWriter, _ *http.Request) {
	if !e.Accepting() {
		writeText(w, http.StatusServiceUnavailable, "the caches are not filled, or the extender is stopping")
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// timed answers with what a verb writes into the workspace, or with the HTTP status of its error,
// and measures it.
func (e *extender) timed(verb string, answer func(*workspace, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := e.Clock.Now()
		r.Body = http.MaxBytesReader(w, r.Body, e.MaxRequestBytes)
		// A connection that is kept open would still lead to a replica on a node that is lost.
		w.Header().Set("Connection", "close")
		space := workspaces.Get().(*workspace)
		defer workspaces.Put(space)
		code := http.StatusOK
		if err := answer(space, r); err != nil {
			code = statusOf(err)
			logr.FromContextOrDiscard(r.Context()).Error(err, "refused a request", "verb", verb, "code", code)
			http.Error(w, err.Error(), code)
		} else {
			space.send(r.Context(), w)
		}
		e.Metrics.requests.WithLabelValues(verb, strconv.Itoa(code)).Observe(e.Clock.Since(start).Seconds())
	}
}

func (e *extender) filter(space *workspace, r *http.Request) error {
	args, err := space.readArgs(r)
	if err != nil {
		return err
	}
	ctx, log := withPod(r.Context(), args.Pod)
	result := &extenderv1.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames}
	volumes, err := e.volumes(ctx, args.Pod)
	if err != nil {
		return err
	}
	if len(volumes) == 0 {
		return space.write(result)
	}
	names := nodeNames(args)
	var passed []string
	var failed extenderv1.FailedNodesMap
	var faults map[Fault]int
	if err := e.Observer.Nodes(ctx, volumes, func(nodes Nodes) { passed, failed, faults = Filter(names, nodes) }); err != nil {
		return err
	}
	for fault, n := range faults {
		e.Metrics.filtered.WithLabelValues(string(fault)).Add(float64(n))
	}
	result.FailedAndUnresolvableNodes = failed
	if args.NodeNames != nil {
		result.NodeNames = &passed
	}
	if args.Nodes != nil {
		result.Nodes = withoutFailed(args.Nodes, failed)
	}
	log.V(1).Info("filtered nodes", "volumes", len(volumes), "nodes", len(names), "passed", len(passed), "failed", failed)
	return space.write(result)
}

func (e *extender) prioritize(space *workspace, r *http.Request) error {
	args, err := space.readArgs(r)
	if err != nil {
		return err
	}
	ctx, log := withPod(r.Context(), args.Pod)
	volumes, err := e.volumes(ctx, args.Pod)
	if err != nil {
		return err
	}
	var list extenderv1.HostPriorityList
	if err := e.Observer.Nodes(ctx, volumes,
		func(nodes Nodes) { list = Prioritize(nodeNames(args), volumes, nodes) }); err != nil {
		return err
	}
	if len(volumes) > 0 {
		log.V(1).Info("prioritized nodes", "volumes", len(volumes), "scores", list)
	}
	return space.write(&list)
}

// volumes returns the pod's volumes that are the driver's. After an error the scheduler continues
// without the extender if it is configured so. An answer without information would be wrong, and
// the scheduler would use it.
func (e *extender) volumes(ctx context.Context, pod *corev1.Pod) ([]Volume, error) {
	if !slices.ContainsFunc(pod.Spec.Volumes, mayBeOurs) {
		return nil, nil
	}
	if !e.Ready(ctx) {
		return nil, errNotReady
	}
	return e.Observer.Volumes(ctx, pod)
}

func mayBeOurs(v corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.AzureDisk != nil
}

var errNotReady = errors.New("not ready: the caches are not filled yet")

// badRequest is an error that the caller made.
type badRequest struct{ error }

func (b badRequest) Unwrap() error { return b.error }

func statusOf(err error) int {
	var tooLarge *http.MaxBytesError
	var bad badRequest
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &bad):
		return http.StatusBadRequest
	case errors.Is(err, errNotReady):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// nodeNames returns the names of the nodes asked about. The scheduler gives names
// only where it was told that the extender keeps a cache, else whole nodes.
func nodeNames(args *extenderv1.ExtenderArgs) []string {
	if args.NodeNames != nil {
		return *args.NodeNames
	}
	if args.Nodes == nil {
		return nil
	}
	names := make([]string, len(args.Nodes.Items))
	for i := range args.Nodes.Items {
		names[i] = args.Nodes.Items[i].Name
	}
	return names
}

func withoutFailed(list *corev1.NodeList, failed extenderv1.FailedNodesMap) *corev1.NodeList {
	kept := &corev1.NodeList{
		TypeMeta: list.TypeMeta,
		ListMeta: list.ListMeta,
		Items:    make([]corev1.Node, 0, len(list.Items)),
	}
	for i := range list.Items {
		if _, out := failed[list.Items[i].Name]; !out {
			kept.Items = append(kept.Items, list.Items[i])
		}
	}
	return kept
}

func withPod(ctx context.Context, pod *corev1.Pod) (context.Context, logr.Logger) {
	log := logr.FromContextOrDiscard(ctx).WithValues("namespace", pod.Namespace, "pod", pod.Name)
	return logr.NewContext(ctx, log), log
}

// send sends the answer at once: in chunks, the one about 5,000 nodes would be some thirty writes
// to the connection.
func (w *workspace) send(ctx context.Context, to http.ResponseWriter) {
	to.Header().Set("Content-Type", "application/json")
	to.Header().Set("Content-Length", strconv.Itoa(w.answer.Len()))
	if _, err := to.Write(w.answer.Bytes()); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot send the answer")
	}
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // the peer is gone if this fails
}
