package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// BenchmarkRequest asks about 100 nodes, and about 5,000, for a pod with 2 volumes, in clusters of
// growing size. The cost of a request for 100 should not grow with the cluster.
func BenchmarkRequest(b *testing.B) {
	for _, size := range []struct{ nodes, volumes int }{{100, 400}, {5000, 20000}} {
		attachments := 2 * size.volumes
		b.Run(fmt.Sprintf("nodes=%d/attachments=%d", size.nodes, attachments), func(b *testing.B) {
			_, config := startAPI(b, clusterOf(size.nodes, size.volumes)...)
			view := startView(b, config)
			handler, _ := newExtender(func(e *extender) { e.Observer = view })
			webhook := &webhook{
				DriverName: driver,
				Observer:   view,
				Ready:      yes,
				Metrics:    newMetrics(prometheus.NewRegistry(), yes),
				Clock:      clock.RealClock{},
			}
			created := pod("claim-0", "claim-1")
			raw, err := json.Marshal(created)
			if err != nil {
				b.Fatal(err)
			}
			request := admission.Request{}
			request.Namespace, request.Object.Raw = created.Namespace, raw
			// The request names no nodes, so the webhook asks about all of them.
			b.Run("webhook", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if patch, result, err := webhook.steer(b.Context(), request); len(patch) == 0 || err != nil {
						b.Fatal(result, err)
					}
				}
			})
			for _, names := range slices.Compact([]int{100, size.nodes}) {
				body := argumentsFor(b, names)
				for _, verb := range []string{"filter", "prioritize"} {
					b.Run(fmt.Sprintf("%s-%d", verb, names), func(b *testing.B) {
						b.ReportAllocs()
						for b.Loop() {
							if w := ask(handler, "/"+verb, body); w != http.StatusOK {
								b.Fatal("status", w)
							}
						}
					})
				}
			}
		})
	}
}

func argumentsFor(b *testing.B, nodes int) []byte {
	b.Helper()
	asked := make([]string, nodes)
	for i := range asked {
		asked[i] = nodeName(i)
	}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod("claim-0", "claim-1"), NodeNames: &asked})
	if err != nil {
		b.Fatal(err)
	}
	return body
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// clusterOf has a claim, a volume, a primary and a replica for each volume.
func clusterOf(nodes, volumes int) []client.Object {
	objects := []client.Object{class("ours", driver)}
	for i := range nodes {
		objects = append(objects, node(nodeName(i), func(n *apiv1.AzDriverNode) {
			n.Spec.VMSize = "Standard_D16s_v5"
			n.Status.Capacity = &apiv1.NodeCapacity{VMSize: n.Spec.VMSize, MaxDataDisks: 32}
		}))
	}
	for i := range volumes {
		disk := fmt.Sprintf("disk-%d", i)
		objects = append(objects,
			claim(fmt.Sprintf("claim-%d", i), "pv-"+disk, "ours"), volume("pv-"+disk, driver, diskURI(disk)),
			azva(disk, nodeName(i%nodes), apiv1.RolePrimary, apiv1.AttachmentAttached),
			azva(disk, nodeName((i+1)%nodes), apiv1.RoleReplica, apiv1.AttachmentAttached))
	}
	return objects
}

func ask(handler http.Handler, path string, body []byte) int {
	w := discarded{header: http.Header{}, code: http.StatusOK}
	handler.ServeHTTP(&w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	return w.code
}

// discarded keeps only the status of an answer, so that only the handler is measured.
type discarded struct {
	header http.Header
	code   int
}

func (d *discarded) Header() http.Header              { return d.header }
func (d *discarded) Write(answer []byte) (int, error) { return len(answer), nil }
func (d *discarded) WriteHeader(code int)             { d.code = code }
