package chart_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// A zone that is lost must not take both controllers with it, also after an upgrade: the pods that
// it replaces, which are in all zones, must not count.
func TestReplicasAreKeptOnDifferentNodesAndInDifferentZones(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t))
	for _, name := range []string{release + "-controller", release + "-scheduler"} {
		terms := nested(t, find(t, list, "Deployment", name), "spec", "template", "spec", "affinity", "podAntiAffinity",
			"preferredDuringSchedulingIgnoredDuringExecution")
		var got []string
		for _, term := range terms {
			of := term["podAffinityTerm"].(map[string]any)
			got = append(got, fmt.Sprint(of["topologyKey"], " ", term["weight"], " ", of["matchLabelKeys"]))
		}
		want := []string{"kubernetes.io/hostname 100 [pod-template-hash]", "topology.kubernetes.io/zone 100 [pod-template-hash]"}
		if !slices.Equal(got, want) {
			t.Errorf("%s is kept apart by %q, want %q", name, got, want)
		}
	}
}

// kubectl apply of rendered manifests puts an object without a namespace into the current one.
func TestEachNamespacedObjectNamesItsNamespace(t *testing.T) {
	t.Parallel()
	cluster := []string{
		"ClusterRole", "ClusterRoleBinding", "CSIDriver", "CustomResourceDefinition", "MutatingWebhookConfiguration", "Namespace",
		"StorageClass",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "VolumeAttributesClass", "VolumeSnapshotClass",
	}
	for _, values := range valueFiles(t) {
		for _, o := range objects(t, render(t, "-f", values)) {
			if has := o.GetNamespace() != ""; has == slices.Contains(cluster, o.GetKind()) {
				t.Errorf("%s: %s %s: got namespace %q", values, o.GetKind(), o.GetName(), o.GetNamespace())
			}
		}
	}
}

func TestNoListenerIsOpenUnlessAsked(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		set      []string
		want     map[string]string // container to the flags for listeners
		services int               // for metrics
	}{
		"nothing said": {nil, map[string]string{
			"controller": "--metrics-address=127.0.0.1:29704 --health-address=:29702",
			"node":       "--metrics-address=127.0.0.1:29705 --health-address=127.0.0.1:29703",
			"extender":   "--metrics-address=127.0.0.1:29707 --address=0 --health-address=:29709 --webhook-address=:29708",
		}, 0},
		"metrics for the network, and the controller in the host's": {
			[]string{"metrics.listen=network,controller.hostNetwork=true"},
			map[string]string{
				"controller": "--metrics-address=:29704 --metrics-secure --health-address=127.0.0.1:29702",
				"node":       "--metrics-address=:29705 --metrics-secure --health-address=127.0.0.1:29703",
				"extender":   "--metrics-address=:29707 --metrics-secure --address=0 --health-address=:29709 --webhook-address=:29708",
			}, 3},
		"a certificate, which nodes do not get": {[]string{"metrics.listen=network,metrics.tlsSecretName=tls,node.metricsPort=0,scheduler.mode=none"}, map[string]string{
			"controller": "--metrics-address=:29704 --metrics-secure --metrics-cert-dir=/etc/azuredisk/metrics --health-address=:29702",
			"node":       "--metrics-address=0 --health-address=127.0.0.1:29703",
		}, 1},
		"plain HTTP": {[]string{"metrics.listen=network,metrics.secure=false,scheduler.mode=none"},
			map[string]string{"controller": "--metrics-address=:29704 --health-address=:29702",
				"node": "--metrics-address=:29705 --health-address=127.0.0.1:29703"}, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var args []string
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			services, got := 0, map[string]string{}
			for _, o := range objects(t, render(t, args...)) {
				switch o.GetKind() {
				case "Service":
					if strings.HasSuffix(o.GetName(), "-metrics") {
						services++
					}
				case "Deployment", "DaemonSet":
					for name, flags := range containers(t, o) {
						flags = slices.DeleteFunc(flags, func(f string) bool {
							return strings.HasPrefix(name, "csi-") || !strings.Contains(f, "address=") &&
								!strings.HasPrefix(f, "--metrics-") || strings.HasPrefix(f, "--csi-")
						})
						if len(flags) > 0 {
							got[name] = strings.Join(flags, " ")
						}
					}
				}
			}
			for container, want := range c.want {
				if got[container] != want {
					t.Errorf("%s: got %s, want %s", container, got[container], want)
				}
			}
			if len(got) != len(c.want) || services != c.services {
				t.Errorf("got %d containers with listeners and %d Services for metrics, want %d and %d", len(got), services,
					len(c.want), c.services)
			}
		})
	}
}

// The extender answers every client. It is reachable only for the kube-scheduler that needs it.
func TestTheExtenderListensOnlyWhereItsSchedulerIs(t *testing.T) {
	t.Parallel()
	const anywhere, loopback = ":29709", "127.0.0.1:29709" // health
	cases := map[string]struct{ set, extender, health, service string }{
		"a webhook": {"mode=webhook", "0", anywhere, "webhook"},
		"a webhook with a certificate": {
			"mode=webhook,scheduler.webhook.certManager.enabled=true,scheduler.webhook.certManager.issuerRef.name=i", "0",
			anywhere, "webhook"},
		"a webhook in the host's network":   {"mode=webhook,scheduler.hostNetwork=true", "0", loopback, "webhook"},
		"an extender in the host's network": {"hostNetwork=true", "127.0.0.1:29706", loopback, "extender"},
		"the same with a Service for others": {"hostNetwork=true,scheduler.service.clusterIP=10.96.0.9", ":29706", loopback,
			"extender"},
		"an extender in the pod network": {"mode=extender", ":29706", anywhere, "extender"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := objects(t, render(t, "--set", "scheduler."+c.set))
			deployment := find(t, list, "Deployment", release+"-scheduler")
			flags := slices.DeleteFunc(containers(t, deployment)["extender"], func(f string) bool {
				return !strings.HasPrefix(f, "--address=") && !strings.HasPrefix(f, "--health-address=")
			})
			if want := []string{"--address=" + c.extender, "--health-address=" + c.health}; !slices.Equal(flags, want) {
				t.Errorf("got %q, want %q", flags, want)
			}
			var ports []string
			for _, o := range list {
				if o.GetKind() == "Service" && o.GetName() == release+"-scheduler" {
					for _, port := range nested(t, o, "spec", "ports") {
						ports = append(ports, fmt.Sprint(port["name"]))
					}
				}
			}
			if got := strings.Join(ports, " "); got != c.service {
				t.Errorf("the Service serves %q, want %q", got, c.service)
			}
		})
	}
}

// A sidecar is asked for its health at its own port. Its metrics are scraped there, too, but not in
// the host's network, where it listens on loopback.
func TestEachSidecarHasAProbeAndIsScraped(t *testing.T) {
	t.Parallel()
	monitored := []string{"--set", "metrics.listen=network,metrics.serviceMonitor.enabled=true"}
	probe := func(host string, ports ...string) map[string]string {
		want := map[string]string{}
		for _, p := range ports {
			name, port, _ := strings.Cut(p, "=")
			want[name] = fmt.Sprintf("--http-endpoint=%s:%s, probed at %s:%s/healthz/leader-election", host, port, host, port)
		}
		return want
	}
	cases := map[string]struct {
		set    string
		probes map[string]string
		ports  []string // of the controller's Service and ServiceMonitor
	}{
		"the pod network": {"snapshot.enabled=true,csiDriver.attachRequired=true",
			probe("", "csi-provisioner=29710", "csi-attacher=29711", "csi-resizer=29712", "csi-snapshotter=29713"),
			[]string{"metrics", "csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"}},
		"the host's network": {"controller.hostNetwork=true", probe("127.0.0.1", "csi-provisioner=29710", "csi-resizer=29712"),
			[]string{"metrics"}},
		"a port of 0": {"sidecars.provisioner.httpPort=0,sidecars.resizer.httpPort=9000", probe("", "csi-resizer=9000"),
			[]string{"metrics", "csi-resizer"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := objects(t, render(t, append(monitored, "--set", c.set)...))
			deployment := &appsv1.Deployment{}
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(
				find(t, list, "Deployment", release+"-controller").Object, deployment))
			got := map[string]string{}
			for _, container := range deployment.Spec.Template.Spec.Containers {
				at := slices.IndexFunc(container.Args, func(a string) bool { return strings.HasPrefix(a, "--http-endpoint=") })
				if at < 0 {
					continue
				}
				get := container.LivenessProbe.HTTPGet
				if get.Port.StrVal != container.Ports[0].Name || container.StartupProbe.HTTPGet.String() != get.String() ||
					container.ReadinessProbe == nil || container.ReadinessProbe.HTTPGet.String() != get.String() {
					t.Errorf("%s: got the probes %v, %v and %v of port %v", container.Name, get, container.StartupProbe,
						container.ReadinessProbe, container.Ports)
				}
				got[container.Name] = fmt.Sprintf("%s, probed at %s:%d%s", container.Args[at], get.Host,
					container.Ports[0].ContainerPort, get.Path)
			}
			if !maps.Equal(got, c.probes) {
				t.Errorf("got %v, want %v", got, c.probes)
			}
			var served, scraped []string
			for _, port := range nested(t, find(t, list, "Service", release+"-controller-metrics"), "spec", "ports") {
				served = append(served, port["name"].(string))
			}
			monitor := find(t, list, "ServiceMonitor", release+"-controller-metrics")
			for _, endpoint := range nested(t, monitor, "spec", "endpoints") {
				scraped = append(scraped, endpoint["port"].(string))
				if secure := endpoint["scheme"] == "https"; secure != (endpoint["port"] == "metrics") {
					t.Errorf("%s is scraped over %v", endpoint["port"], endpoint["scheme"])
				}
			}
			if !slices.Equal(served, c.ports) || !slices.Equal(scraped, c.ports) {
				t.Errorf("got the ports %v and the endpoints %v, want %v", served, scraped, c.ports)
			}
		})
	}
}

// Root on a node has the credentials of the pods there. The pods are never on nodes of AKS's users' pools, and prefer, less than
// they keep apart, a label that a kubelet cannot give its node: NodeRestriction refuses its prefix.
func TestTheControlPlaneRunsOnNodesThatAreTrusted(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t))
	for _, name := range []string{release + "-controller", release + "-scheduler"} {
		deployment := &appsv1.Deployment{}
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, list, "Deployment", name).Object, deployment))
		pod := &corev1.Pod{Spec: deployment.Spec.Template.Spec}
		affinity := pod.Spec.Affinity.NodeAffinity
		preferred, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
		must(t, err)
		for of, test := range map[string]struct {
			labels  map[string]string
			allowed bool
			score   int64
		}{
			"a system pool":        {map[string]string{"kubernetes.azure.com/mode": "system"}, true, 0},
			"a user pool":          {map[string]string{"kubernetes.azure.com/mode": "user"}, false, 0},
			"no pool of AKS":       {nil, true, 0},
			"an administrator's":   {map[string]string{"node-restriction.kubernetes.io/azuredisk": "controller"}, true, 10},
			"another restricted's": {map[string]string{"node-restriction.kubernetes.io/azuredisk": "other"}, true, 0},
		} {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
			maps.Copy(node.Labels, test.labels)
			allowed, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
			must(t, err)
			if got := preferred.Score(node); allowed != test.allowed || got != test.score {
				t.Errorf("%s: a node of %s: got allowed %t with a score of %d, want %t, %d", name, of, allowed, got, test.allowed,
					test.score)
			}
		}
		for _, term := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
			for _, by := range term.Preference.MatchExpressions {
				if !strings.HasPrefix(by.Key, "node-restriction.kubernetes.io/") {
					t.Errorf("%s prefers nodes by %s, which a kubelet may set", name, by.Key)
				}
			}
		}
	}
}

// Root of a container with a directory of the host has all of it, for example the keys of the cluster.
func TestTheControllerHasNoDirectoryOfTheHost(t *testing.T) {
	t.Parallel()
	for _, values := range append(valueFiles(t), profiles(t)...) {
		for _, o := range objects(t, render(t, "-f", values)) {
			if o.GetKind() != "Deployment" {
				continue
			}
			volumes, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
			must(t, err)
			for _, volume := range volumes {
				if host, is := volume.(map[string]any)["hostPath"].(map[string]any); is && host["type"] != "File" {
					t.Errorf("%s: %s: got the host's %v, want files alone", values, o.GetName(), host)
				}
			}
		}
	}
}

func TestNameOverrideIsPartOfEachName(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"nameOverride=disks":                         release + "-disks",
		"nameOverride=" + release:                    release,
		"nameOverride=disks,fullnameOverride=volume": "volume",
	} {
		list := objects(t, render(t, "--set", set))
		controller := find(t, list, "Deployment", want+"-controller")
		if got := controller.GetLabels()["app.kubernetes.io/name"]; got != "azuredisk" {
			t.Errorf("%s: got the label %q, want the one by which the driver finds its pods", set, got)
		}
	}
}

// With fips each of our containers has Go's setting, and without it none.
func TestFIPSIsASettingOfOurContainers(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		var got []string
		for _, o := range objects(t, render(t, "--set", fmt.Sprintf("fips=%t", on))) {
			if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
				continue
			}
			for _, container := range nested(t, o, "spec", "template", "spec", "containers") {
				if strings.Contains(fmt.Sprint(container["env"]), "fips140=on") {
					got = append(got, container["name"].(string))
				}
			}
		}
		slices.Sort(got)
		if want := []string{"controller", "extender", "node"}; on && !slices.Equal(got, want) || !on && len(got) > 0 {
			t.Errorf("fips=%t: got the setting in %v", on, got)
		}
	}
}

// The image of the chart in the repository must be set: its name cannot resolve, because no registry
// can have it (RFC 2606, section 2).
func TestTheDefaultImageCannotBeSomebodysElse(t *testing.T) {
	t.Parallel()
	found := 0
	for _, o := range objects(t, render(t)) {
		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}
		for _, container := range nested(t, o, "spec", "template", "spec", "containers") {
			name, image := container["name"].(string), container["image"].(string)
			if strings.HasPrefix(name, "csi-") {
				continue
			}
			found++
			if registry, _, _ := strings.Cut(image, "/"); !strings.HasSuffix(registry, ".invalid") {
				t.Errorf("%s, container %s: got the image %s, want a registry below .invalid", o.GetName(), name, image)
			}
		}
	}
	if found < 3 {
		t.Errorf("found %d of our containers, want 3 or more", found)
	}
}

// Managed Prometheus of AKS has its own API group. The API server waits for the webhook for at most
// three seconds.
func TestMonitorsHaveTheirAPIVersionAndPodsDoNotWaitLong(t *testing.T) {
	t.Parallel()
	const version = "azmonitoring.coreos.com/v1"
	list := objects(t, render(t, "--set", "metrics.listen=network,metrics.serviceMonitor.enabled=true", "--set",
		"metrics.serviceMonitor.apiVersion="+version))
	var monitors []string
	for _, o := range list {
		if o.GetKind() != "ServiceMonitor" {
			continue
		}
		monitors = append(monitors, o.GetName())
		if o.GetAPIVersion() != version {
			t.Errorf("ServiceMonitor %s: got the API version %s, want %s", o.GetName(), o.GetAPIVersion(), version)
		}
	}
	// Those of the controller, the node plug-in and the webhook.
	if len(monitors) < 3 {
		t.Errorf("got the monitors %v, want three", monitors)
	}
	for _, webhook := range nested(t, find(t, list, "MutatingWebhookConfiguration", release+"-scheduler"), "webhooks") {
		if seconds := fmt.Sprint(webhook["timeoutSeconds"]); seconds != "2" && seconds != "3" {
			t.Errorf("webhook %v: got a timeout of %v s, want 2 or 3", webhook["name"], webhook["timeoutSeconds"])
		}
	}
}

// A node runs one node plug-in, that of its pool. A node without disks runs none.
func TestEachNodeRunsTheNodePlugInOfItsPool(t *testing.T) {
	t.Parallel()
	list := objects(t, render(
		t,
		"--set-json",
		`node.pools={"large":{"nodeSelector":{"pool":"large"}},"arm":{"nodeSelector":{"kubernetes.io/arch":"arm64"}},"none":null}`,
		"--set-json",
		`node.affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
			{"matchExpressions":[{"key":"disks","operator":"NotIn","values":["no"]}]},
			{"matchExpressions":[{"key":"always","operator":"Exists"}]}]}}}`,
	))
	linux := map[string]string{"kubernetes.io/os": "linux"}
	cases := map[string]struct {
		labels map[string]string
		want   string
	}{
		"a node of no pool":         {nil, "azuredisk-node"},
		"a node of another pool":    {map[string]string{"pool": "small"}, "azuredisk-node"},
		"a node of a pool":          {map[string]string{"pool": "large"}, "azuredisk-node-large"},
		"a node of two pools":       {map[string]string{"pool": "large", "kubernetes.io/arch": "arm64"}, "azuredisk-node-arm"},
		"a virtual node":            {map[string]string{"type": "virtual-kubelet", "always": ""}, ""},
		"a virtual node of a pool":  {map[string]string{"type": "virtual-kubelet", "pool": "large"}, ""},
		"a Windows node":            {map[string]string{"kubernetes.io/os": "windows"}, ""},
		"a node that is left out":   {map[string]string{"disks": "no"}, ""},
		"a node of the second term": {map[string]string{"disks": "no", "always": ""}, "azuredisk-node"},
		"a node of both, within a pool": {map[string]string{"disks": "no", "always": "", "pool": "large"},
			"azuredisk-node-large"},
	}
	for name, c := range cases {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{}}}
		for _, labels := range []map[string]string{linux, c.labels} {
			maps.Copy(node.Labels, labels)
		}
		var got []string
		for _, o := range list {
			if o.GetKind() != "DaemonSet" {
				continue
			}
			set := &appsv1.DaemonSet{}
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set))
			matches, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec}).Match(node)
			must(t, err)
			if matches {
				got = append(got, set.Name)
			}
		}
		if strings.Join(got, ",") != c.want {
			t.Errorf("%s: got the node plug-in of %v, want %q", name, got, c.want)
		}
	}
}

func TestAPoolHasItsOwnSettings(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t, "-f", filepath.Join("values", "everything.yaml")))
	large, manual, others := find(t, list, "DaemonSet", "disks-node-large"), find(t, list, "DaemonSet",
		"disks-node-manual"), find(t, list, "DaemonSet", "disks-node")
	for o, want := range map[*unstructured.Unstructured][]string{
		large:  {"--max-formats-and-checks=8", "--reserved-volume-slots=2"},
		manual: {"--max-formats-and-checks=1", "--reserved-volume-slots=0"},
		others: {"--max-formats-and-checks=1", "--reserved-volume-slots=0"},
	} {
		for _, flag := range want {
			if got := containers(t, o)["node"]; !slices.Contains(got, flag) {
				t.Errorf("%s: got %v, want %s", o.GetName(), got, flag)
			}
		}
	}
	for o, want := range map[*unstructured.Unstructured]string{
		large:  "RollingUpdate",
		manual: "OnDelete",
		others: "RollingUpdate",
	} {
		if got, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "type"); got != want {
			t.Errorf("%s: got updates by %s, want %s", o.GetName(), got, want)
		}
	}
	container := nested(t, large, "spec", "template", "spec", "containers")[0]
	if got, _, _ := unstructured.NestedString(container, "resources", "limits", "memory"); got != "4Gi" {
		t.Errorf("got a limit of %s, want 4Gi", got)
	}
	selected := map[string]string{}
	for _, o := range []*unstructured.Unstructured{large, manual, others} {
		labels, _, err := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels")
		must(t, err)
		if other := selected[labels["app.kubernetes.io/component"]]; other != "" {
			t.Errorf("%s selects the pods of %s as well", o.GetName(), other)
		}
		selected[labels["app.kubernetes.io/component"]] = o.GetName()
	}
}

func TestADigestIsMoreExactThanATag(t *testing.T) {
	t.Parallel()
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	manifest := render(t, "--set", "snapshot.enabled=true,csiDriver.attachRequired=true,image.digest="+digest+
		",sidecars.provisioner.image.digest="+digest+",sidecars.attacher.image.digest="+digest+",sidecars.resizer.image.digest="+
		digest+",sidecars.snapshotter.image.digest="+digest)
	for line := range strings.Lines(manifest) {
		if image, is := strings.CutPrefix(strings.TrimSpace(line), "image: "); is &&
			!strings.HasSuffix(strings.Trim(image, `"`), "@"+digest) {
			t.Errorf("got image %s, want it by its digest", image)
		}
	}
}

// A parent chart switches this one by a condition, and sets the registry and the Secrets of all its charts.
func TestThisChartIsAnOptionalPartOfAnother(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	must(t, os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte("apiVersion: v2\nname: parent\nversion: 1.0.0\n"+
		"dependencies:\n- {name: azuredisk, version: '*', condition: azuredisk.enabled}\n"), 0o600))
	must(t, os.Mkdir(filepath.Join(parent, "charts"), 0o750))
	must(t, os.CopyFS(filepath.Join(parent, "charts", "azuredisk"), os.DirFS(chartDir())))
	rendered := func(enabled bool) []*unstructured.Unstructured {
		output, err := helm(t, "template", release, parent, "--namespace", namespace, "--kube-version", kubeVersion,
			"--set", fmt.Sprintf("azuredisk.enabled=%t,azuredisk.csiDriver.attachRequired=false", enabled), "--set", "azuredisk.imagePullSecrets[0].name=own",
			"--set", "global.imageRegistry=mirror.example.com/x", "--set", "global.imagePullSecrets={all}")
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return objects(t, output)
	}
	if off := rendered(false); len(off) != 0 {
		t.Errorf("switched off: got %d objects, want none", len(off))
	}
	controller := find(t, rendered(true), "Deployment", release+"-controller")
	secrets := nested(t, controller, "spec", "template", "spec", "imagePullSecrets")
	if got, want := fmt.Sprint(secrets), "[map[name:own] map[name:all]]"; got != want {
		t.Errorf("got Secrets %s, want %s", got, want)
	}
	for _, c := range nested(t, controller, "spec", "template", "spec", "containers") {
		image, _ := c["image"].(string)
		if rest, is := strings.CutPrefix(image, "mirror.example.com/x/"); !is || strings.Contains(rest, ".invalid") ||
			strings.Contains(rest, "k8s.io") {
			t.Errorf("got image %s, want it in the mirror", image)
		}
	}
}
