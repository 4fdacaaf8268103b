package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Observer is what the decisions rest on; *View is one.
type Observer interface {
	// Volumes returns the pod's volumes that are the driver's.
	Volumes(ctx context.Context, pod *corev1.Pod) ([]Volume, error)
	// Health judges whether a node can mount the driver's volumes.
	Health(ctx context.Context, node string) (Health, error)
}

// Extender answers kube-scheduler over HTTP: POST /filter and /prioritize, GET /healthz and /readyz.
type Extender struct {
	Observer Observer
	// Ready says that the observer knows the cluster. Until then every node passes and all score the same.
	Ready func() bool
	// Accepting is what /readyz says: Ready, and not about to stop.
	Accepting func() bool
	// MaxRequestBytes bounds a request's body.
	MaxRequestBytes int64
	Metrics         *Metrics
	Clock           clock.PassiveClock
}

// Handler returns the HTTP handler.
func (e *Extender) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /filter", e.timed("filter", e.filter))
	mux.HandleFunc("POST /prioritize", e.timed("prioritize", e.prioritize))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", e.readyz)
	return mux
}

func (e *Extender) readyz(w http.ResponseWriter, _ *http.Request) {
	if !e.Accepting() {
		writeText(w, http.StatusServiceUnavailable, "the caches are not filled, or the extender is stopping")
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// timed answers with the result of a verb, or with the HTTP status of its error, and measures it.
func (e *Extender) timed(verb string, answer func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := e.Clock.Now()
		r.Body = http.MaxBytesReader(w, r.Body, e.MaxRequestBytes)
		result, err := answer(r)
		code := http.StatusOK
		if err != nil {
			code = statusOf(err)
			logr.FromContextOrDiscard(r.Context()).Error(err, "refused a request", "verb", verb, "code", code)
			http.Error(w, err.Error(), code)
		} else {
			writeJSON(r.Context(), w, result)
		}
		e.Metrics.requests.WithLabelValues(verb, strconv.Itoa(code)).Observe(e.Clock.Since(start).Seconds())
	}
}

func (e *Extender) filter(r *http.Request) (any, error) {
	args, err := readArgs(r)
	if err != nil {
		return nil, err
	}
	ctx, log := withPod(r.Context(), args.Pod)
	result := &extenderv1.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames}
	volumes := e.volumes(ctx, args.Pod)
	if len(volumes) == 0 {
		return result, nil
	}
	nodes := nodeNames(args)
	passed, failed := Filter(nodes, func(node string) Health {
		h := e.health(ctx, node)
		if !h.Usable() {
			e.Metrics.filtered.WithLabelValues(string(h.Fault)).Inc()
		}
		return h
	})
	result.FailedAndUnresolvableNodes = failed
	if args.NodeNames != nil {
		result.NodeNames = &passed
	}
	if args.Nodes != nil {
		result.Nodes = withoutFailed(args.Nodes, failed)
	}
	log.V(1).Info("filtered nodes", "volumes", len(volumes), "nodes", len(nodes), "passed", len(passed), "failed", failed)
	return result, nil
}

func (e *Extender) prioritize(r *http.Request) (any, error) {
	args, err := readArgs(r)
	if err != nil {
		return nil, err
	}
	ctx, log := withPod(r.Context(), args.Pod)
	volumes := e.volumes(ctx, args.Pod)
	list := Prioritize(nodeNames(args), volumes, func(node string) Health { return e.health(ctx, node) })
	if len(volumes) > 0 {
		log.V(1).Info("prioritized nodes", "volumes", len(volumes), "scores", list)
	}
	return &list, nil
}

// volumes returns none where it cannot tell: the extender gives advice and must not hold a pod back for its own lack of knowledge.
func (e *Extender) volumes(ctx context.Context, pod *corev1.Pod) []Volume {
	log := logr.FromContextOrDiscard(ctx)
	if !e.Ready() {
		log.Info("passed all nodes: the caches are not filled yet")
		return nil
	}
	volumes, err := e.Observer.Volumes(ctx, pod)
	if err != nil {
		log.Error(err, "passed all nodes: cannot find the pod's volumes")
		return nil
	}
	return volumes
}

func (e *Extender) health(ctx context.Context, node string) Health {
	h, err := e.Observer.Health(ctx, node)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "passed a node: cannot tell its health", "node", node)
		return Health{}
	}
	return h
}

var errNoPod = errors.New("the request has no pod")

func readArgs(r *http.Request) (*extenderv1.ExtenderArgs, error) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		return nil, err
	}
	if args.Pod == nil {
		return nil, errNoPod
	}
	return &args, nil
}

func statusOf(err error) int {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
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
	kept := &corev1.NodeList{TypeMeta: list.TypeMeta, ListMeta: list.ListMeta, Items: make([]corev1.Node, 0, len(list.Items))}
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

func writeJSON(ctx context.Context, w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot send the answer")
	}
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // the peer is gone if this fails
}
