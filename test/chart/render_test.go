package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
)

func TestLint(t *testing.T) {
	t.Parallel()
	for _, values := range valueFiles(t) {
		if output, err := helm(t, "lint", "--strict", "--kube-version", kubeVersion, "-f", values, chartDir()); err != nil {
			t.Errorf("%s: %v\n%s", values, err, output)
		}
	}
}

func valueFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("values/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no values files: %v", err)
	}
	return files
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default.yaml", "everything.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareOrUpdate(t, filepath.Join("golden", name), render(t, "-f", filepath.Join("values", name)))
		})
	}
}

func TestTheWebhookHasItsCertificateFromCertManager(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t, "-f", filepath.Join("values", "webhook-cert-manager.yaml")))
	const want = "map[dnsNames:[azuredisk-scheduler.azure-disk-csi.svc] " +
		"issuerRef:map[group:cert-manager.io kind:ClusterIssuer name:cluster-ca] " +
		"privateKey:map[algorithm:ECDSA rotationPolicy:Always size:256] secretName:azuredisk-scheduler-tls]"
	if got := fmt.Sprint(find(t, list, "Certificate", release+"-scheduler").Object["spec"]); got != want {
		t.Errorf("got certificate %s, want %s", got, want)
	}
	webhook := find(t, list, "MutatingWebhookConfiguration", release+"-scheduler")
	if got, want := webhook.GetAnnotations()["cert-manager.io/inject-ca-from"], namespace+"/"+release+"-scheduler"; got != want {
		t.Errorf("got authorities from %q, want %q", got, want)
	}
	volumes := nested(t, find(t, list, "Deployment", release+"-scheduler"), "spec", "template", "spec", "volumes")
	if got, want := fmt.Sprint(volumes), "[map[name:tls secret:map[defaultMode:288 secretName:azuredisk-scheduler-tls]]]"; got != want {
		t.Errorf("got volumes %s, want %s", got, want)
	}
}

func TestTheCRDsAreTheGeneratedOnesAndAreKept(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(chartDir(), "files", "crds", "*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%d generated CRDs: %v", len(files), err)
	}
	rendered := objects(t, render(t, "--show-only", "templates/crds.yaml"))
	if len(rendered) != len(files) {
		t.Fatalf("%d CRDs rendered of %d", len(rendered), len(files))
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must(t, err)
		generated := objects(t, string(raw))[0]
		crd := find(t, rendered, "CustomResourceDefinition", generated.GetName())
		if !reflect.DeepEqual(crd.Object["spec"], generated.Object["spec"]) {
			t.Errorf("%s is rendered with another spec", generated.GetName())
		}
		if crd.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s would be deleted on uninstall, and the record of every disk with it", crd.GetName())
		}
	}
}

func TestTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		values string
		says   string
	}{
		"a value that does not exist":          {"controler.replicas=3", "'controler' not allowed"},
		"a value that does not exist, deep":    {"controller.replica=3", "/controller"},
		"a scheduler mode that does not exist": {"scheduler.mode=both", "'auto', 'webhook', 'extender', 'none'"},
		"a webhook that the API server waits for too long": {"scheduler.webhook.timeoutSeconds=31",
			"/scheduler/webhook/timeoutSeconds"},
		"authorities that are no PEM": {"scheduler.webhook.caBundle=abc", "/scheduler/webhook/caBundle"},
		"a webhook whose certificate no API server would trust": {"scheduler.mode=webhook,scheduler.tls.secretName=mine",
			"scheduler.webhook.caBundle: must be"},
		"a certificate of cert-manager without an Issuer": {"scheduler.webhook.certManager.enabled=true",
			"scheduler.webhook.certManager.issuerRef.name: must name"},
		"a mode of attachments that only a cluster knows": {"csiDriver.attachRequired=auto",
			"csiDriver.attachRequired: auto, and there is no cluster to ask"},
		"text where a number belongs":       {"controller.replicas=two", "/controller/replicas"},
		"no replicas":                       {"controller.replicas=0", "/controller/replicas"},
		"a weight out of range":             {"scheduler.weight=0", "/scheduler/weight"},
		"a duration without a unit":         {"sidecars.attacher.timeout=120", "/sidecars/attacher/timeout"},
		"a log level that does not exist":   {"logLevel=loud", "/logLevel"},
		"a StorageClass without parameters": {"storageClasses.mine.default=true", "/storageClasses/mine"},
		"a relative kubelet directory":      {"node.kubeletDir=var/lib/kubelet", "/node/kubeletDir"},
		"a proxy that is no URL":            {"cloud.proxy.httpsProxy=proxy:3128", "/cloud/proxy/httpsProxy"},
		"a cloud that does not exist":       {"cloud.environment=AzureMars", "/cloud/environment"},
		"a probe that does not exist":       {"controller.failover.probe=ping", "'kubelet', 'none'"},
		"a threshold above all nodes": {
			"controller.failover.massLossThreshold=101", "/controller/failover/massLossThreshold"},
		"a threshold of no nodes": {
			"controller.failover.massLossThreshold=0", "/controller/failover/massLossThreshold"},
		"updates more often than allowed": {"csiDriver.nodeAllocatableUpdatePeriodSeconds=5",
			"/csiDriver/nodeAllocatableUpdatePeriodSeconds"},
		"a driver name that is no name": {"driverName=Disk_Driver", "/driverName"},
		"a kind of snapshots":           {"snapshot.enabled=sometimes", "/snapshot/enabled"},
		"a deletion policy that does not exist": {"volumeSnapshotClasses.mine.deletionPolicy=Recycle",
			"/volumeSnapshotClasses/mine/deletionPolicy"},
		"a VolumeAttributesClass of nothing": {"volumeAttributesClasses.mine.annotations.a=b", "/volumeAttributesClasses/mine"},
		"a value that an older release had":  {"cloud.proxy.https=http://proxy:3128", "renamed to cloud.proxy.httpsProxy"},
		"annotations where an older release had them": {"node.serviceAccountAnnotations.a=b",
			"moved to node.serviceAccount.annotations"},
		"ServiceMonitors for metrics on loopback":    {"metrics.serviceMonitor.enabled=true", "metrics.listen: must be network"},
		"an existing service account without a name": {"node.serviceAccount.create=false", "node.serviceAccount.name: must name"},
		"a service account of a node and of the controller": {"node.serviceAccount.name=one,controller.serviceAccount.name=one",
			"node.serviceAccount.name: must not be that of the controller"},
		"a pool without a label": {"node.pools.large.maxVolumes=3", "missing property 'nodeSelector'"},
		"a pool with two labels": {"node.pools.large.nodeSelector.a=b,node.pools.large.nodeSelector.c=d",
			"/node/pools/large/nodeSelector"},
		"a pool with a setting of all nodes": {"node.pools.large.nodeSelector.a=b,node.pools.large.kubeletDir=/x",
			"'kubeletDir' not allowed"},
		"a digest that is none":            {"image.digest=latest", "/image/digest"},
		"a tag that Azure does not accept": {"extraTags.a/b=c", "/extraTags"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := helm(t, "template", release, chartDir(), "--kube-version", kubeVersion, "--set", c.values)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: want a refusal that says %q, got %v", c.values, c.says, err)
			}
		})
	}
}

// The failover deletes these pods on a lost node, and knows them by their labels.
func TestTheFailoverKnowsThePodsOfTheScheduler(t *testing.T) {
	t.Parallel()
	for _, component := range []string{"controller", "scheduler"} {
		workload := find(t, objects(t, render(t)), "Deployment", release+"-"+component)
		labels, _, err := unstructured.NestedStringMap(workload.Object, "spec", "template", "metadata", "labels")
		must(t, err)
		got := lostnode.AdvisesScheduler(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
		if want := component == "scheduler"; got != want {
			t.Errorf("pods of the %s: got %t, want %t", component, got, want)
		}
	}
}

// What an earlier release was told for its extender keeps the extender.
func TestTheSchedulerModeFollowsTheAddressOfTheExtender(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		values string
		want   string
	}{
		"nothing said":                         {"scheduler.replicas=2", "webhook"},
		"a cluster IP":                         {"scheduler.service.clusterIP=10.96.0.99", "extender"},
		"a node port":                          {"scheduler.service.type=NodePort,scheduler.service.nodePort=30606", "extender"},
		"the host's network":                   {"scheduler.hostNetwork=true", "extender"},
		"a certificate of the extender":        {"scheduler.tls.secretName=mine", "extender"},
		"an address, and the webhook by name":  {"scheduler.mode=webhook,scheduler.service.clusterIP=10.96.0.99", "webhook"},
		"no address, and the extender by name": {"scheduler.mode=extender", "extender"},
		"an address, and neither":              {"scheduler.mode=none,scheduler.hostNetwork=true", "none"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			has := map[string]bool{}
			for _, o := range objects(t, render(t, "--set", c.values)) {
				if o.GetName() == release+"-scheduler" {
					has[o.GetKind()] = true
				}
			}
			want := map[string]map[string]bool{
				"webhook":  {"MutatingWebhookConfiguration": true, "Service": true, "Deployment": true},
				"extender": {"Service": true, "Deployment": true},
				"none":     {},
			}[c.want]
			for _, kind := range []string{"MutatingWebhookConfiguration", "Service", "Deployment"} {
				if has[kind] != want[kind] {
					t.Errorf("%s: %s rendered: got %t, want %t, as in mode %s", c.values, kind, has[kind], want[kind], c.want)
				}
			}
		})
	}
}

func TestSnapshotsAreServedWhereTheClusterHasThem(t *testing.T) {
	t.Parallel()
	const crds = "--api-versions=snapshot.storage.k8s.io/v1"
	cases := map[string]struct {
		args []string
		want bool
	}{
		"auto, in a cluster without the CRDs":   {nil, false},
		"auto, in a cluster with the CRDs":      {[]string{crds}, true},
		"true, in a cluster without the CRDs":   {[]string{"--set=snapshot.enabled=true"}, true},
		"false, in a cluster that has the CRDs": {[]string{crds, "--set=snapshot.enabled=false"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := objects(t, render(t, append(c.args, "--set=crds.install=false")...))
			_, sidecar := containers(t, find(t, list, "Deployment", release+"-controller"))["csi-snapshotter"]
			class := slices.ContainsFunc(list,
				func(o *unstructured.Unstructured) bool { return o.GetKind() == "VolumeSnapshotClass" })
			if sidecar != c.want || class != c.want {
				t.Errorf("sidecar %t, class %t, want %t", sidecar, class, c.want)
			}
		})
	}
}

func TestAFieldOfANewerKubernetesIsRefusedBeforeIt(t *testing.T) {
	t.Parallel()
	_, err := helm(t, "template", release, chartDir(), "--set", "csiDriver.preventPodSchedulingIfMissing=true",
		"--kube-version", "1.36.3")
	if err == nil || !strings.Contains(err.Error(), "from 1.37 on") {
		t.Errorf("an older Kubernetes: %v", err)
	}
}

func TestTheNodePlugInGetsNoCredential(t *testing.T) {
	t.Parallel()
	for _, values := range valueFiles(t) {
		daemonSet := find(t, objects(t, render(t, "-f", values)), "DaemonSet", fullname(values)+"-node")
		volumes, _, err := unstructured.NestedSlice(daemonSet.Object, "spec", "template", "spec", "volumes")
		must(t, err)
		for _, volume := range volumes {
			if v := volume.(map[string]any); v["secret"] != nil || v["projected"] != nil || v["configMap"] != nil {
				t.Errorf("%s: the node plug-in mounts %v", values, v)
			}
		}
	}
}

func fullname(values string) string {
	if strings.Contains(values, "everything") {
		return "disks"
	}
	return release
}

func TestWithoutVolumeAttachmentsThereIsNoAttacher(t *testing.T) {
	t.Parallel()
	manifest := render(t, "--set", "csiDriver.attachRequired=false")
	for _, gone := range []string{"csi-attacher", "[volumeattachments"} {
		if strings.Contains(manifest, gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	if n := strings.Count(manifest, "--attach-required=false"); n != 2 {
		t.Errorf("%d of the 2 plug-ins are told", n)
	}
	driver := find(t, objects(t, manifest), "CSIDriver", "disk.csi.azure.com")
	if required, found, err := unstructured.NestedBool(driver.Object, "spec", "attachRequired"); required || !found ||
		err != nil {
		t.Errorf("attachRequired is %t, %t, %v", required, found, err)
	}
}
