package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	jsonpatch "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
)

// steerPath is where the webhook answers.
const steerPath = "/steer-pods"

// results of an admission request; they label a metric.
const (
	resultSteered   = "Steered"
	resultUnchanged = "Unchanged"
	resultNotReady  = "NotReady"
	resultFailed    = "Failed"
)

// webhook answers admission requests for new pods with the preferences for their nodes. It allows
// every pod: without an answer in time, without information and after an error the pod is created
// unchanged.
type webhook struct {
	Observer observer
	// DriverName is the CSI driver's name.
	DriverName string
	// Ready says that the observer knows the cluster.
	Ready   func() bool
	Metrics *metrics
	Clock   clock.PassiveClock
}

// handler returns the HTTP handler.
func (w *webhook) handler() http.Handler {
	admit := &admission.Webhook{Handler: w}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+steerPath, func(response http.ResponseWriter, request *http.Request) {
		// A connection that is kept open would still lead to a replica on a node that is lost.
		response.Header().Set("Connection", "close")
		admit.ServeHTTP(response, request)
	})
	return mux
}

// Handle answers one request.
func (w *webhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	start := w.Clock.Now()
	log := logr.FromContextOrDiscard(ctx).WithValues("namespace", request.Namespace, "pod", request.Name)
	patch, result, err := w.guardedSteer(logr.NewContext(ctx, log), request)
	if err != nil {
		log.Error(err, "the pod is created without preferences for nodes")
	}
	w.Metrics.steered.WithLabelValues(result).Observe(w.Clock.Since(start).Seconds())
	return admission.Patched("", patch...)
}

// guardedSteer turns a panic into an error: controller-runtime would answer it with a refusal of
// the pod.
func (w *webhook) guardedSteer(ctx context.Context, request admission.Request) (patch []jsonpatch.Operation, result string,
	err error) {
	defer func() {
		if cause := recover(); cause != nil {
			patch, result, err = nil, resultFailed, fmt.Errorf("panic: %v", cause)
		}
	}()
	return w.steer(ctx, request)
}

func (w *webhook) steer(ctx context.Context, request admission.Request) (patch []jsonpatch.Operation, result string, err error) {
	var pod corev1.Pod
	if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
		return nil, resultFailed, fmt.Errorf("read the pod: %w", err)
	}
	pod.Namespace = request.Namespace // A new pod may leave it to the request.
	if !w.Ready() {
		return nil, resultNotReady, nil
	}
	if annotation.Steering.Switched(pod.Annotations) != "" {
		return nil, resultUnchanged, nil
	}
	volumes, err := w.Observer.Volumes(ctx, &pod)
	if err != nil {
		return nil, resultFailed, err
	}
	if len(volumes) == 0 {
		return nil, resultUnchanged, nil
	}
	fitness, err := judge(ctx, w.Observer, volumes)
	if err != nil {
		return nil, resultFailed, err
	}
	terms := fitness.preferences()
	if zones := demandOf(volumes).zones; len(zones) > 0 {
		terms = append(terms, preferred(avoidWeight, apiv1.ZoneLabel(w.DriverName), corev1.NodeSelectorOpIn, zones))
	}
	patch = steer(&pod, terms)
	if len(patch) == 0 {
		return mark(&pod, apiv1.SteeredFalse), resultUnchanged, nil
	}
	patch = append(patch, mark(&pod, apiv1.SteeredTrue)...)
	logr.FromContextOrDiscard(ctx).V(1).Info("steered a pod", "volumes", len(volumes), "scores", fitness.Scores, "unfit",
		len(fitness.Unfit))
	return patch, resultSteered, nil
}

// mark returns the patch that says on a pod what the webhook has done. The controller counts the
// pods without it.
func mark(pod *corev1.Pod, steered string) []jsonpatch.Operation {
	const annotations = "/metadata/annotations"
	if pod.Annotations == nil {
		all := map[string]string{apiv1.AnnotationSteered: steered}
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", annotations, all)}
	}
	key := strings.ReplaceAll(apiv1.AnnotationSteered, "/", "~1") // RFC 6901, section 3
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", annotations+"/"+key, steered)}
}

// judge judges the nodes with a node plug-in. Other nodes cannot get the pod: its PersistentVolumes
// require a label that the node plug-in registers.
func judge(ctx context.Context, observer observer, volumes []Volume) (fitness, error) {
	fitness := fitness{Scores: map[string]int64{}, Unfit: map[string]Fault{}}
	err := observer.Nodes(ctx, volumes, func(nodes Nodes) {
		for node := range nodes.Registered() {
			score := score(node, volumes)
			feasibility := nodes.Feasible(node)
			switch {
			case feasibility.feasible() && score == 0:
			case len(validation.IsValidLabelValue(node)) > 0:
				// No label has this value, and the API server might refuse the pod because of it.
			case feasibility.Fault == faultZone:
				// These can be many. The zone itself is preferred.
			case !feasibility.feasible():
				fitness.Unfit[node] = feasibility.Fault
			default:
				fitness.Scores[node] = score
			}
		}
	})
	return fitness, err
}
