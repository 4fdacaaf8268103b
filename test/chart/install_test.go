package chart_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

func eventually(t testing.TB, what string, is func() error) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := is()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("waited a minute for: %s: %v", what, err)
		case <-tick.C:
		}
	}
}

// The steps share one cluster: installed, used, upgraded, uninstalled.
func TestARealAPIServerTakesTheChart(t *testing.T) {
	kube, config := apiserver.Client(t), apiserver.Kubeconfig(t)
	run := func(t *testing.T, args ...string) {
		t.Helper()
		if output, err := helm(t, append(args, "--kubeconfig", config, "-n", namespace)...); err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, output)
		}
	}
	// The test's API server has the CRDs already, as a cluster has after an uninstall. The first
	// release is what the chart made before it had expansion, capacity and snapshots on by default.
	run(t, "install", release, chartDir(), "--create-namespace", "--take-ownership",
		"--set", "csiDriver.storageCapacity=false,controller.expand=false,snapshot.enabled=false")
	run(t, "upgrade", release, chartDir(), "--reset-values")

	t.Run("the priority classes exist that the pods name", func(t *testing.T) {
		for _, name := range []string{"system-node-critical", "system-cluster-critical"} {
			if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{}); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a node plug-in writes its own AzDriverNode and nothing else", func(t *testing.T) { nodeWritesItsOwn(t, kube) })
	t.Run("the scheduler changes the authorities of its webhook and nothing else",
		func(t *testing.T) { schedulerWritesAuthorities(t, kube) })
	t.Run("an upgrade keeps the certificate of the webhook", func(t *testing.T) {
		keepsCertificate(t, kube, func() {
			run(t, "upgrade", release, chartDir(), "--reset-values", "--set", "scheduler.webhook.timeoutSeconds=3")
		})
	})
	t.Run("a rollback keeps the certificate of the webhook and the records", func(t *testing.T) {
		record := &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "recorded"},
			Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm"},
		}
		must(t, kube.Create(t.Context(), record))
		run(t, "upgrade", release, chartDir(), "--reset-values")
		keepsCertificate(t, kube, func() { run(t, "rollback", release) })
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(record), record); err != nil || record.Spec.VMID != "/vm" {
			t.Errorf("after the rollback: got %+v, %v, want the record as it was", record.Spec, err)
		}
		if err := kube.Delete(t.Context(), record); err != nil {
			t.Error(err)
		}
	})
	t.Run("an upgrade to the extender with all values is taken", func(t *testing.T) {
		run(t, "upgrade", release, chartDir(), "--set",
			"scheduler.mode=extender,snapshot.enabled=true,volumeSnapshotClasses.azuredisk-snapshot=null,"+
				"volumeAttributesClasses.gold.parameters.skuName=Premium_LRS")
		run(t, "upgrade", release, chartDir(), "-f", filepath.Join("values", "minimal.yaml"), "--set", "crds.install=true")
		run(t, "upgrade", release, chartDir(), "--reset-values")
	})
	t.Run("every set of values is taken by a dry run on the server", func(t *testing.T) {
		for _, values := range valueFiles(t) {
			if strings.Contains(values, "everything") {
				// Of the other projects' kinds, this API server has none.
				run(t, "upgrade", release, chartDir(), "--dry-run=server", "-f", values, "--set",
					"csiDriver.attachRequired=auto,metrics.serviceMonitor.enabled=false,volumeSnapshotClasses=null,driverNamespace="+namespace)
				continue
			}
			run(t, "upgrade", release, chartDir(), "--dry-run=server", "-f", values, "--set",
				"scheduler.webhook.certManager.enabled=false")
		}
	})
	t.Run("attachRequired is changed only where Kubernetes lets it and nothing is attached",
		func(t *testing.T) { changesAttachRequired(t, kube, config) })
	t.Run("an uninstall keeps the CRDs and the disks' records", func(t *testing.T) {
		kept := &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"},
			Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm"},
		}
		must(t, kube.Create(t.Context(), kept))
		// No component of the test runs the hook's Job.
		run(t, "uninstall", release, "--no-hooks")
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
			t.Error(err)
		}
		var roles corev1.ServiceAccountList
		if err := kube.List(t.Context(), &roles, client.InNamespace(namespace),
			client.MatchingLabels{"app.kubernetes.io/instance": release}); err != nil || len(roles.Items) != 0 {
			t.Errorf("%d service accounts left over: %v", len(roles.Items), err)
		}
		run(t, "install", release, chartDir())
		run(t, "uninstall", release, "--no-hooks")
	})
	t.Run("records of the first V2 are refused", func(t *testing.T) { refusesFirstV2(t, config) })
}

// refusesFirstV2 gives a CRD what the preview of V2 leaves behind, a version that objects are stored
// in, and what a later version of this chart leaves behind.
func refusesFirstV2(t *testing.T, config string) {
	installs := func(what string) error {
		defer stored(t, what)()
		_, err := helm(t, "install", release, chartDir(), "--kubeconfig", config, "-n", namespace, "--dry-run=server")
		return err
	}
	err := installs("v1beta2")
	if want := "azvolumes.disk.csi.azure.com of the first V2 driver is there, with objects of version v1beta2"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	if err := installs("v2"); err != nil && strings.Contains(err.Error(), "first V2 driver") {
		t.Errorf("over objects of a later version: got %v", err)
	}
}

// stored says that objects are stored in a version that the chart's CRD does not have, until the
// function that it returns is called.
func stored(t *testing.T, version string) (undo func()) {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, apiextensionsv1.AddToScheme(scheme))
	kube, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	must(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(t, kube.Get(t.Context(), client.ObjectKey{Name: "azvolumes.disk.csi.azure.com"}, crd))
	first := *crd.Spec.Versions[0].DeepCopy()
	first.Name, first.Served, first.Storage = version, false, false
	crd.Spec.Versions = append(crd.Spec.Versions, first)
	must(t, kube.Update(t.Context(), crd))
	crd.Status.StoredVersions = append(crd.Status.StoredVersions, first.Name)
	must(t, kube.Status().Update(t.Context(), crd))
	return func() {
		crd.Status.StoredVersions = crd.Status.StoredVersions[:1]
		must(t, kube.Status().Update(t.Context(), crd))
		crd.Spec.Versions = crd.Spec.Versions[:1]
		must(t, kube.Update(t.Context(), crd))
	}
}

// keepsCertificate checks that Helm leaves alone what the pods of the webhook write: the
// certificate and its authorities.
func keepsCertificate(t *testing.T, kube client.Client, upgrade func()) {
	secret, configuration := &corev1.Secret{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	secretKey, configurationKey := client.ObjectKey{
		Namespace: namespace,
		Name:      release + "-scheduler-webhook",
	}, client.ObjectKey{Name: release + "-scheduler"}
	get := func() {
		t.Helper()
		for key, object := range map[client.ObjectKey]client.Object{secretKey: secret, configurationKey: configuration} {
			must(t, kube.Get(t.Context(), key, object))
		}
	}
	get()
	authority := apiserver.Config(t).CAData
	secret.Data = map[string][]byte{"ca.crt": authority}
	configuration.Webhooks[0].ClientConfig.CABundle = authority
	for _, object := range []client.Object{secret, configuration} {
		must(t, kube.Update(t.Context(), object))
	}
	upgrade()
	get()
	if *configuration.Webhooks[0].TimeoutSeconds != 3 {
		t.Errorf("got a timeout of %d s after the upgrade, want 3 s", *configuration.Webhooks[0].TimeoutSeconds)
	}
	if !bytes.Equal(secret.Data["ca.crt"], authority) ||
		!bytes.Equal(configuration.Webhooks[0].ClientConfig.CABundle, authority) {
		t.Error("the upgrade removed the certificate or its authorities")
	}
}

// changesAttachRequired follows docs/guides/without-volumeattachments.md there and back.
func changesAttachRequired(t *testing.T, kube client.Client, config string) {
	const driver = "disk.csi.azure.com"
	const guide = "docs/guides/without-volumeattachments.md"
	upgrade := func(required string) error {
		_, err := helm(t, "upgrade", release, chartDir(), "--reuse-values", "--set", "csiDriver.attachRequired="+required,
			"--kubeconfig", config, "-n", namespace)
		return err
	}
	becomes := func(what string, wanted bool, required string) {
		t.Helper()
		if err := upgrade(required); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var is storagev1.CSIDriver
		if err := kube.Get(t.Context(), client.ObjectKey{Name: driver}, &is); err != nil || *is.Spec.AttachRequired != wanted {
			t.Errorf("%s: the CSIDriver is %+v, not %t: %v", what, is.Spec, wanted, err)
		}
		var controller appsv1.Deployment
		must(t, kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "azuredisk-controller"}, &controller))
		if told := fmt.Sprint(controller.Spec.Template.Spec.Containers); !strings.Contains(told,
			fmt.Sprintf("--attach-required=%t", wanted)) {
			t.Errorf("%s: the controller is told otherwise: %s", what, told)
		}
	}
	refused := func(what, why, required string) {
		t.Helper()
		if err := upgrade(required); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), guide) {
			t.Errorf("%s: %v", what, err)
		}
	}
	remove := func(o client.Object) {
		t.Helper()
		must(t, kube.Delete(t.Context(), o))
	}
	csiDriver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}}
	volume := "pv"
	left := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "left"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver,
			NodeName: "node-a",
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}
	becomes("a new cluster", false, "auto")
	refused("a change of the CSIDriver that is there", "the CSIDriver "+driver+" that is there has false", "true")
	must(t, kube.Create(t.Context(), left))
	remove(csiDriver)
	becomes("Kubernetes has made a VolumeAttachment because the CSIDriver was deleted", false, "auto")
	left.Status.Attached = true
	must(t, kube.Status().Update(t.Context(), left))
	remove(csiDriver)
	for _, required := range []string{"false", "auto"} {
		refused("a VolumeAttachment is left", "the VolumeAttachment left of "+driver+" to node node-a is there", required)
	}
	becomes("V1's pods still run", true, "true")
	remove(left)
	becomes("what is there stays", true, "auto")
	refused("a change back", "the CSIDriver "+driver+" that is there has true", "false")
	remove(csiDriver)
	becomes("nothing is attached", false, "false")
	remove(csiDriver)
	becomes("back again", true, "true")
	remove(csiDriver)
	becomes("the CSIDriver was deleted", true, "auto")
	remove(csiDriver)
	// A CSIDriver that the chart does not create has Kubernetes' default.
	rendered, err := helm(t, "upgrade", release, chartDir(), "--reset-values", "--dry-run=server", "--set",
		"csiDriver.create=false", "--kubeconfig", config, "-n", namespace)
	must(t, err)
	if !strings.Contains(rendered, "--attach-required=true") || strings.Contains(rendered, "kind: CSIDriver") {
		t.Errorf("without the chart's CSIDriver: got %s, want --attach-required=true and no CSIDriver", rendered)
	}
	becomes("as it was", false, "false")
}

func nodeWritesItsOwn(t *testing.T, kube client.Client) {
	plugIn := clientOfNode(t, kube, "node-a")
	node := func(name string) *apiv1.AzDriverNode {
		return &apiv1.AzDriverNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       apiv1.AzDriverNodeSpec{VMID: "/vm/" + name},
		}
	}
	own, other := node("node-a"), node("node-b")
	must(t, kube.Create(t.Context(), other))
	// Role and policy take a moment until the API server knows them. Once the role
	// lets the plug-in read, it lets it create as well, and what then refuses is the policy.
	eventually(t, "the role is known", func() error {
		return plugIn.Get(t.Context(), client.ObjectKeyFromObject(other),
			node(""))
	})
	eventually(t, "the policy is enforced", func() error {
		stranger := node("node-c")
		err := plugIn.Create(t.Context(), stranger)
		if apierrors.IsForbidden(err) {
			return nil
		}
		return errors.Join(errors.New("not refused"), err, client.IgnoreNotFound(kube.Delete(t.Context(), stranger)))
	})
	// judge writes one of the controller's conditions of itself.
	judge := func(kind string) func() error {
		return func() error {
			o := own.DeepCopy()
			meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue,
				Reason: apiv1.ReasonStarting})
			return plugIn.Status().Patch(t.Context(), o, client.MergeFrom(own))
		}
	}
	steps := []struct {
		what    string
		do      func() error
		allowed bool
	}{
		{"create its own", func() error { return plugIn.Create(t.Context(), own) }, true},
		{"change its own", func() error {
			before := own.DeepCopy()
			own.Spec.Zone = "1"
			return plugIn.Patch(t.Context(), own, client.MergeFrom(before))
		}, true},
		{"report on its own", func() error {
			before := own.DeepCopy()
			own.Status.DriverVersion = "v1"
			return plugIn.Status().Patch(t.Context(), own, client.MergeFrom(before))
		}, true},
		{"write the whole of its own, with what it does not know", func() error {
			return plugIn.Update(t.Context(), own.DeepCopy())
		}, false},
		{"say that its plug-in is ready", func() error {
			before := own.DeepCopy()
			meta.SetStatusCondition(&own.Status.Conditions, metav1.Condition{Type: apiv1.NodeConditionPluginReady,
				Status: metav1.ConditionTrue, Reason: apiv1.ReasonStarting})
			return plugIn.Status().Patch(t.Context(), own, client.MergeFrom(before))
		}, true},
		{"ask itself to fence another", func() error {
			o := own.DeepCopy()
			o.Spec.Requests = &apiv1.NodeRequests{Fences: []apiv1.FenceRequest{{VolumeName: "v", NodeName: "node-b", Epoch: 1,
				RequestTime: metav1.NowMicro()}}}
			return plugIn.Patch(t.Context(), o, client.MergeFrom(own))
		}, false},
		{"say how many disks it can have", func() error {
			o := own.DeepCopy()
			o.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 64}
			return plugIn.Status().Patch(t.Context(), o, client.MergeFrom(own))
		}, false},
		{"say that it is reachable", judge(apiv1.NodeConditionReachable), false},
		{"say that it is ready as a whole", judge(apiv1.NodeConditionReady), false},
		{"set a finalizer on its own", func() error {
			o := own.DeepCopy()
			o.Finalizers = []string{"example.com/stay"}
			return plugIn.Patch(t.Context(), o, client.MergeFrom(own))
		}, false},
		{"set an owner of its own", func() error {
			o := own.DeepCopy()
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
			return plugIn.Patch(t.Context(), o, client.MergeFrom(own))
		}, false},
		{"read another's", func() error { return plugIn.Get(t.Context(), client.ObjectKeyFromObject(other), node("")) }, true},
		{"create another's", func() error { return plugIn.Create(t.Context(), node("node-d")) }, false},
		{"change another's", func() error {
			o := other.DeepCopy()
			o.Spec.Zone = "9"
			return plugIn.Patch(t.Context(), o, client.MergeFrom(other))
		}, false},
		{"report on another's", func() error {
			o := other.DeepCopy()
			o.Status.DriverVersion = "evil"
			return plugIn.Status().Patch(t.Context(), o, client.MergeFrom(other))
		}, false},
		{"delete its own", func() error { return plugIn.Delete(t.Context(), own) }, false},
		{"create an attachment", func() error {
			return plugIn.Create(t.Context(), &apiv1.AzVolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "v-node-a"},
				Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "node-a", Role: apiv1.RoleReplica},
			})
		}, false},
		{"read the Secret with the credential", func() error {
			return plugIn.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "azure-cloud-config"}, &corev1.Secret{})
		}, false},
	}
	for _, step := range steps {
		err := step.do()
		if step.allowed && err != nil {
			t.Errorf("may not %s: %v", step.what, err)
		}
		if !step.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("may %s: %v", step.what, err)
		}
	}
	unbound := clientWithToken(t, token(t, kube, "node", nil))
	if err := unbound.Create(t.Context(), node("node-e")); !apierrors.IsForbidden(err) {
		t.Errorf("a token that is bound to no node may create an AzDriverNode: %v", err)
	}
	for _, name := range []string{"node-a", "node-b"} {
		if err := kube.Delete(t.Context(), node(name)); err != nil {
			t.Error(err)
		}
	}
}

func schedulerWritesAuthorities(t *testing.T, kube client.Client) {
	scheduler := clientWithToken(t, token(t, kube, "scheduler", nil))
	key := client.ObjectKey{Name: release + "-scheduler"}
	patch := func(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) error {
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		must(t, kube.Get(t.Context(), key, configuration))
		before := configuration.DeepCopy()
		change(configuration)
		return scheduler.Patch(t.Context(), configuration, client.MergeFrom(before), client.DryRunAll)
	}
	change := func(change func(*admissionregistrationv1.MutatingWebhook)) func() error {
		return func() error {
			return patch(func(c *admissionregistrationv1.MutatingWebhookConfiguration) { change(&c.Webhooks[0]) })
		}
	}
	annotate := func() error {
		return patch(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Annotations = map[string]string{"a": "b"}
		})
	}
	eventually(t, "the role is known", func() error {
		return scheduler.Get(t.Context(), key, &admissionregistrationv1.MutatingWebhookConfiguration{})
	})
	eventually(t, "the policy is enforced", func() error {
		if err := annotate(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	authority := apiserver.Config(t).CAData
	all := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"},
			Resources: []string{"*/*"}},
	}
	url, fail, other := "https://attacker.example.com", admissionregistrationv1.Fail, "/other"
	sideEffects, everywhere := admissionregistrationv1.SideEffectClassNoneOnDryRun, &metav1.LabelSelector{}
	steps := map[string]struct {
		do      func() error
		allowed bool
	}{
		"the authorities": {change(func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = authority }),
			true},
		"a URL instead of the Service": {change(func(w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig.URL, w.ClientConfig.Service = &url, nil
		}), false},
		"the authorities and a URL": {change(func(w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority}
		}), false},
		"the Service": {change(func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.Service.Name = "other" }),
			false},
		"the Service's path": {change(func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.Service.Path = &other }),
			false},
		"the rules": {change(func(w *admissionregistrationv1.MutatingWebhook) { w.Rules[0] = all }), false},
		"a further rule": {
			change(func(w *admissionregistrationv1.MutatingWebhook) { w.Rules = append(w.Rules, all) }), false},
		"the failure policy": {change(func(w *admissionregistrationv1.MutatingWebhook) { w.FailurePolicy = &fail }), false},
		"the side effects":   {change(func(w *admissionregistrationv1.MutatingWebhook) { w.SideEffects = &sideEffects }), false},
		"the namespaces": {
			change(func(w *admissionregistrationv1.MutatingWebhook) { w.NamespaceSelector = everywhere }), false},
		"the objects": {change(func(w *admissionregistrationv1.MutatingWebhook) {
			w.ObjectSelector.MatchLabels = map[string]string{"a": "b"}
		}), false},
		"the conditions": {change(func(w *admissionregistrationv1.MutatingWebhook) { w.MatchConditions = nil }), false},
		"the name of a webhook": {change(func(w *admissionregistrationv1.MutatingWebhook) { w.Name = "other.example.com" }),
			false},
		"a further webhook": {func() error {
			return patch(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				further := c.Webhooks[0].DeepCopy()
				further.Name = "further.example.com"
				c.Webhooks = append(c.Webhooks, *further)
			})
		}, false},
		"no webhook": {func() error {
			return patch(func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks = nil })
		}, false},
		"an annotation": {annotate, false},
		"the labels": {func() error {
			return patch(func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Labels = nil })
		}, false},
		"a finalizer": {func() error {
			return patch(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				c.Finalizers = []string{"example.com/stay"}
			})
		}, false},
		"an owner": {func() error {
			return patch(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: "x"}}
			})
		}, false},
	}
	for what, step := range steps {
		err := step.do()
		if step.allowed && err != nil {
			t.Errorf("may not change %s: got %v, want no error", what, err)
		}
		if !step.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("may change %s: got %v, want that it is forbidden", what, err)
		}
	}
	foreign := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	must(t, kube.Create(t.Context(), foreign))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), foreign) })
	if err := scheduler.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); !apierrors.IsForbidden(err) {
		t.Errorf("may read another webhook configuration: got %v, want that it is forbidden", err)
	}
}

// clientOfNode has the rights of the node plug-in's pod on a node: its token is bound to the pod,
// and with it to the node.
func clientOfNode(t *testing.T, kube client.Client, nodeName string) client.Client {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	must(t, kube.Create(t.Context(), node))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), node) })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plug-in-" + nodeName},
		Spec: corev1.PodSpec{
			NodeName:           nodeName,
			ServiceAccountName: release + "-node",
			Containers:         []corev1.Container{{Name: "node", Image: "none"}},
		},
	}
	must(t, kube.Create(t.Context(), pod))
	return clientWithToken(t, token(t, kube, "node", pod))
}

// token is a token of a component's account, bound to a pod unless that is nil.
func token(t *testing.T, kube client.Client, component string, pod *corev1.Pod) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release + "-" + component}}
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       pod.Name,
			UID:        pod.UID,
		}
	}
	must(t, kube.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

func clientWithToken(t *testing.T, token string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(apiserver.Config(t))
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme(t)})
	must(t, err)
	return c
}
