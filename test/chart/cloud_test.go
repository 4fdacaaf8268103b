package chart_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// controllerContainer is the container controller, and the volumes of its pod by name.
func controllerContainer(t *testing.T, list []*unstructured.Unstructured) (container map[string]any,
	volumes map[string]map[string]any) {
	t.Helper()
	deployment := find(t, list, "Deployment", release+"-controller")
	pods, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	must(t, err)
	for _, c := range pods {
		if c := c.(map[string]any); c["name"] == "controller" {
			container = c
		}
	}
	mounted, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "volumes")
	must(t, err)
	volumes = map[string]map[string]any{}
	for _, v := range mounted {
		volumes[v.(map[string]any)["name"].(string)] = v.(map[string]any)
	}
	return container, volumes
}

// variables of a container that have a plain value.
func variables(container map[string]any) map[string]string {
	found := map[string]string{}
	list, _ := container["env"].([]any)
	for _, v := range list {
		if v := v.(map[string]any); v["value"] != nil {
			found[v["name"].(string)] = v["value"].(string)
		}
	}
	return found
}

// mounts of a container: volume name to path.
func mounts(container map[string]any) map[string]string {
	found := map[string]string{}
	for _, v := range container["volumeMounts"].([]any) {
		found[v.(map[string]any)["name"].(string)] = v.(map[string]any)["mountPath"].(string)
	}
	return found
}

func TestWhereTheControllerFindsItsCredentials(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set    []string
		flags  []string // that the controller has
		mount  string   // where the volume cloud is; "" for none
		volume string   // kind of that volume
		reads  string   // namespace/name of the Secret that the controller may read over the API
	}{
		"a Secret of the release": {flags: []string{"--cloud-config=/etc/azuredisk/cloud/azure.json"},
			mount: "/etc/azuredisk/cloud", volume: "secret"},
		"the V1 driver's Secret, in the release's namespace": {
			set: []string{"cloud.secretName=azure-cloud-provider", "cloud.secretKey=cloud-config",
				"cloud.secretNamespace=" + namespace}, flags: []string{"--cloud-config=/etc/azuredisk/cloud/cloud-config"},
			mount: "/etc/azuredisk/cloud", volume: "secret"},
		"the V1 driver's Secret, where V1 has it": {
			set: []string{"cloud.secretName=azure-cloud-provider", "cloud.secretKey=cloud-config",
				"cloud.secretNamespace=kube-system"},
			flags: []string{"--cloud-config=", "--cloud-config-secret-name=azure-cloud-provider",
				"--cloud-config-secret-namespace=kube-system", "--cloud-config-secret-key=cloud-config"},
			reads: "kube-system/azure-cloud-provider"},
		"a file of the host, under the host's path": {set: []string{"cloud.hostPath=/etc/kubernetes/cloud.conf"},
			flags: []string{"--cloud-config=/etc/kubernetes/cloud.conf"}, mount: "/etc/kubernetes/cloud.conf",
			volume: "hostPath"},
		"the environment alone": {
			set: []string{"cloud.environmentOnly=true", "cloud.subscriptionID=s", "cloud.resourceGroup=g",
				"cloud.location=East US"},
			flags: []string{"--cloud-config=", "--subscription-id=s", "--resource-group=g", "--location=East US"}},
		"names for the user agent": {set: []string{"cloud.customUserAgent=AKS", "cloud.userAgentSuffix=team a"},
			flags: []string{"--custom-user-agent=AKS", "--user-agent-suffix=team a"}, mount: "/etc/azuredisk/cloud",
			volume: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--set", "crds.install=false"}
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			list := objects(t, render(t, args...))
			container, volumes := controllerContainer(t, list)
			flags := containers(t, find(t, list, "Deployment", release+"-controller"))["controller"]
			for _, f := range c.flags {
				if !slices.Contains(flags, f) {
					t.Errorf("the controller has no %s among %v", f, flags)
				}
			}
			if got := mounts(container)["cloud"]; got != c.mount {
				t.Errorf("azure.json is mounted at %q, want %q", got, c.mount)
			}
			if v := volumes["cloud"]; (v != nil) != (c.volume != "") || v != nil && v[c.volume] == nil {
				t.Errorf("the volume is %v, want %q", v, c.volume)
			}
			if got := readableSecret(t, list); got != c.reads {
				t.Errorf("the controller may read the Secret %q, want %q", got, c.reads)
			}
		})
	}
}

// readableSecret is the Secret that a Role lets the controller read, as namespace/name.
func readableSecret(t *testing.T, list []*unstructured.Unstructured) string {
	t.Helper()
	for _, o := range list {
		if o.GetKind() != "Role" || !strings.HasSuffix(o.GetName(), "-cloud-config") {
			continue
		}
		rules, _, err := unstructured.NestedSlice(o.Object, "rules")
		if err != nil || len(rules) != 1 {
			t.Fatalf("%v: %v", rules, err)
		}
		rule := rules[0].(map[string]any)
		names, verbs := rule["resourceNames"].([]any), rule["verbs"].([]any)
		if len(names) != 1 || len(verbs) != 1 || verbs[0] != "get" {
			t.Errorf("too much: %v", rule)
		}
		binding := find(t, list, "RoleBinding", o.GetName())
		if binding.GetNamespace() != o.GetNamespace() {
			t.Errorf("bound in %s", binding.GetNamespace())
		}
		return o.GetNamespace() + "/" + names[0].(string)
	}
	return ""
}

func TestTheControllersWayToAzure(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t, "--set", "crds.install=false", "--set", "cloud.environmentOnly=true", "--set",
		"cloud.managedIdentity.clientID=id", "--set", "cloud.environment=AzureChinaCloud",
		"--set", "cloud.proxy.httpsProxy=http://proxy:3128", "--set", `cloud.proxy.noProxy=a.example\,b.example`,
		"--set", "cloud.caConfigMap=private-ca", "--set", "cloud.certificateSecret=identity"))
	container, volumes := controllerContainer(t, list)
	got := variables(container)
	for name, want := range map[string]string{
		"AZURE_CLIENT_ID": "id", "AZURE_ENVIRONMENT": "AzureChinaCloud", "HTTPS_PROXY": "http://proxy:3128", "HTTP_PROXY": "",
		"NO_PROXY": "a.example,b.example,$(KUBERNETES_SERVICE_HOST),.svc,localhost,127.0.0.1,169.254.169.254,168.63.129.16",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if mounts(container)["ca"] != "/etc/azuredisk/ca" || mounts(container)["identity"] != "/etc/azuredisk/identity" ||
		volumes["identity"]["secret"] == nil {
		t.Errorf("mounts %v, volumes %v", mounts(container), volumes)
	}
	if flags := containers(t, find(t, list, "Deployment", release+"-controller"))["controller"]; !slices.Contains(flags,
		"--cloud-ca-file=/etc/azuredisk/ca/ca.crt") {
		t.Errorf("the bundle is not given: %v", flags)
	}
}

func TestWorkloadIdentityIsAskedForOfItsWebhook(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t, "--set", "crds.install=false", "--set", "cloud.workloadIdentity.clientID=client", "--set",
		"cloud.workloadIdentity.tenantID=tenant"))
	labels, _, err := unstructured.NestedStringMap(find(t, list, "Deployment", release+"-controller").Object, "spec", "template",
		"metadata", "labels")
	if err != nil || labels["azure.workload.identity/use"] != "true" {
		t.Errorf("labels %v: %v", labels, err)
	}
	deployment := find(t, list, "Deployment", release+"-controller")
	skipped, _, err := unstructured.NestedString(deployment.Object, "spec", "template", "metadata", "annotations",
		"azure.workload.identity/skip-containers")
	must(t, err)
	for name := range containers(t, deployment) {
		// The separator is the webhook's: pkg/webhook in Azure/azure-workload-identity.
		if sidecar := name != "controller"; slices.Contains(strings.Split(skipped, ";"), name) != sidecar {
			t.Errorf("containers without Azure's token: %q; %s is a sidecar: %t", skipped, name, sidecar)
		}
	}
	account := find(t, list, "ServiceAccount", release+"-controller").GetAnnotations()
	if account["azure.workload.identity/client-id"] != "client" || account["azure.workload.identity/tenant-id"] != "tenant" {
		t.Errorf("annotations %v", account)
	}
}
