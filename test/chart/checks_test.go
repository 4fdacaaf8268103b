package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/config"
)

// rendered returns an object of the chart.
func rendered[T any](t *testing.T, manifest, kind, name string) *T {
	t.Helper()
	into := new(T)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, objects(t, manifest), kind, name).Object, into))
	return into
}

// The checks of an installation know the labels, the flags, the containers, the leases and the ports
// of the chart: they find no fault in what it renders, but the certificate that the webhook makes.
func TestTheChecksKnowTheChart(t *testing.T) {
	t.Parallel()
	for _, attachRequired := range []string{"false", "true"} {
		manifest := render(t, "--set", "csiDriver.attachRequired="+attachRequired, "--api-versions=snapshot.storage.k8s.io/v1")
		now := time.Now()
		f := checks.Facts{
			Now: now, DriverName: config.DriverName, DriverNamespace: namespace,
			CSIDriver: rendered[storagev1.CSIDriver](t, manifest, "CSIDriver", config.DriverName),
			Deployments: []*appsv1.Deployment{
				rendered[appsv1.Deployment](t, manifest, "Deployment", "azuredisk-controller"),
				rendered[appsv1.Deployment](t, manifest, "Deployment", release+"-scheduler"),
			},
			DaemonSets: []*appsv1.DaemonSet{rendered[appsv1.DaemonSet](t, manifest, "DaemonSet", release+"-node")},
			Webhooks: []*admissionv1.MutatingWebhookConfiguration{
				rendered[admissionv1.MutatingWebhookConfiguration](t, manifest, "MutatingWebhookConfiguration",
					release+"-scheduler"),
			},
			Slices: []*discoveryv1.EndpointSlice{{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
					"kubernetes.io/service-name": rendered[corev1.Service](t, manifest, "Service", release+"-scheduler").Name,
				}},
				Endpoints: []discoveryv1.Endpoint{{}},
			}},
		}
		for _, d := range f.Deployments {
			d.Status.ReadyReplicas = *d.Spec.Replicas
		}
		f.DaemonSets[0].Status = appsv1.DaemonSetStatus{NumberReady: 1, DesiredNumberScheduled: 1}
		leases := []string{explain.LeaseController}
		for _, c := range f.Deployments[0].Spec.Template.Spec.Containers {
			if name := explain.LeaseOf(c.Name, f.DriverName); name != "" {
				leases = append(leases, name)
			}
		}
		if want := 4 + strings.Count(attachRequired, "true"); len(leases) != want {
			t.Errorf("attachRequired %s: got the leases %v, want %d", attachRequired, leases, want)
		}
		for _, name := range leases {
			if !strings.Contains(manifest, name) {
				t.Errorf("attachRequired %s: got no right to the lease %s, want one", attachRequired, name)
			}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("x"), ptr.To(int32(15))
			lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
			f.Leases = append(f.Leases, lease)
		}
		known := []string{"CSIDriver", "Versions", "Controller", "Leader", "Sidecars", "NodePlugins", "Steering"}
		for _, l := range checks.Doctor(f).Lines {
			webhook := l.Check == "Steering" && strings.HasSuffix(l.Says, "its caBundle is empty")
			if slices.Contains(known, l.Check) && l.Result != checks.OK && !webhook {
				t.Errorf("attachRequired %s: %s: got %s, %q, want ok", attachRequired, l.Check, l.Result, l.Says)
			}
		}
		f.Pods = []*corev1.Pod{{Spec: f.DaemonSets[0].Spec.Template.Spec}}
		for _, l := range checks.Preflight(f).Lines {
			if l.Check != "HostPorts" {
				continue
			}
			for _, port := range f.DaemonSets[0].Spec.Template.Spec.Containers[0].Ports {
				if !strings.Contains(l.Says, fmt.Sprintf("port %d is taken", port.ContainerPort)) {
					t.Errorf("port %d of the node plug-in: got %q, want it found", port.ContainerPort, l.Says)
				}
			}
		}
	}
}
