package collect_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

const (
	subscriptionID = "5f0c6b2e-5b1c-4a0e-9f52-0123456789ab"
	tenantID       = "9a0c6b2e-5b1c-4a0e-9f52-0123456789ab"
)

// planted is one of each secret that the driver, Azure or a user may have written somewhere, with words
// around them that have to stay, and the IDs of a subscription and of a tenant.
const planted = `kept-before eyJhbGciOiJSUzI1NiJ9.eyJQTEFOVEVEIjoxfQAA.PLANTED-signature ` +
	`Authorization: Bearer PLANTEDplantedPLANTEDplanted "Authorization":"Basic PLANTED" ` +
	`https://x.blob.core.windows.net/c?sv=2021-08-06&sig=PLANTED%2Babc%3D&se=2026-01-01 ` +
	`{"aadClientSecret":"PLANTED~secret","aadClientCertPassword": "PLANTED-word"} {\"aadClientSecret\":\"PLANTED~secret\"} ` +
	`AccountName=x;AccountKey=PLANTEDkey==;EndpointSuffix=core.windows.net --client-secret=PLANTED-flag ` +
	`http://user:PLANTEDpw@proxy.test:3128 ` +
	`{\"asyncURL\":\"https://management.azure.com/operations/1?api-version=1\u0026p=PLANTEDp&t=PLANTEDt&c=PLANTEDc&s=PLANTEDs&h=PLANTEDh\"} ` +
	`/subscriptions/` + subscriptionID + `/resourceGroups/g tenantID: ` + tenantID + ` kept-after`

const privateKey = "-----BEGIN RSA PRIVATE KEY-----\nPLANTED\nkey+/=\n-----END RSA PRIVATE KEY-----\n"

// plant puts the secrets into an annotation, which each object can have.
func plant(o client.Object) {
	annotations := map[string]string{"note": planted + " " + privateKey, corev1.LastAppliedConfigAnnotation: "PLANTED"}
	maps.Copy(annotations, o.GetAnnotations())
	o.SetAnnotations(annotations)
}

func driverPod(name, owner string, restarts int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: driverNS, Name: name, Labels: map[string]string{
			"app.kubernetes.io/name": "azuredisk",
		}, OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: "x"}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "controller",
			Env:  []corev1.EnvVar{{Name: "AZURE_CLIENT_SECRET", Value: "PLANTED"}, {Name: "LEVEL", Value: "kept-env"}},
		}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "controller", Ready: true, RestartCount: restarts,
		}}},
	}
}

// bundled is a stage with a volume that lacks a replica, and with secrets in each object.
func bundled(t *testing.T) (*stage, []client.Object) {
	t.Helper()
	s := newStage()
	runs(s.pod)
	s.volume.Status.PersistentVolume = "pv"
	s.volume.Status.Operation = &apiv1.Operation{Type: "AttachDisk", ResumeToken: planted}
	s.volume.Status.Conditions = append(s.volume.Status.Conditions, metav1.Condition{
		Type: apiv1.VolumeConditionReplicasAttached, Status: metav1.ConditionFalse, Reason: apiv1.ReasonReplicasMissing,
		Message: planted,
	})
	s.controller.Labels = map[string]string{"app.kubernetes.io/name": "azuredisk"}
	container := &s.controller.Spec.Template.Spec.Containers[0]
	container.Args = append(container.Args, planted)
	container.Env = []corev1.EnvVar{{Name: "PROXY_PASSWORD", Value: "PLANTED"}}
	s.event("PersistentVolumeClaim", "data", "FailoverHeldBack", planted)
	s.more = append(s.more, driverPod("azuredisk-controller-1", "ReplicaSet", 2), driverPod("azuredisk-node-b", "DaemonSet", 0),
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: driverNS, Name: "azuredisk-node", Labels: s.controller.Labels,
		}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName, NodeName: "b", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")},
		}, Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: planted}}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "other-driver"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "other"}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: driverNS, Name: "azure-cloud-config"},
			Data:       map[string][]byte{"azure.json": []byte("PLANTED")},
		},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "other-claim"}, InvolvedObject: corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", Namespace: shop, Name: "other-drivers"}},
	)
	all := s.objects()
	for _, o := range all {
		plant(o)
	}
	return s, all
}

func collectBundle(t *testing.T, from client.Reader, change ...func(*collect.BundleOptions)) map[string]string {
	t.Helper()
	options := collect.BundleOptions{
		DriverName: driverName, DriverNamespace: driverNS, Now: func() time.Time { return objects.Now },
		Log: func(_ context.Context, p *corev1.Pod, container string, previous bool) ([]byte, error) {
			return []byte(fmt.Sprintf("%s %s %t %s\n%s", p.Name, container, previous, planted, privateKey)), nil
		},
	}
	for _, c := range change {
		c(&options)
	}
	files, err := collect.Bundle(t.Context(), from, options)
	if err != nil {
		t.Fatalf("got %v, want a bundle", err)
	}
	found := map[string]string{}
	for _, f := range files {
		found[f.Name] = string(f.Content)
	}
	return found
}

func TestABundleHasWhatSupportNeedsAndNoSecrets(t *testing.T) {
	t.Parallel()
	_, all := bundled(t)
	files := collectBundle(t, indexed(all...))
	want := []string{"contents.txt", "logs/azure-disk-csi/azuredisk-controller-1/controller.log",
		"logs/azure-disk-csi/azuredisk-controller-1/controller.previous.log",
		"logs/azure-disk-csi/azuredisk-node-b/controller.log"}
	for _, kind := range []string{"azvolumes", "azvolumeattachments", "azdrivernodes", "csidriver", "storageclasses",
		"persistentvolumes", "persistentvolumeclaims", "volumeattachments", "nodes", "csinodes", "deployments", "daemonsets",
		"pods", "leases", "events"} {
		want = append(want, "objects/"+kind+".yaml")
	}
	want = append(want, "why.txt")
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("got files %q, want %q", got, want)
	}
	for name, text := range files {
		if at := strings.Index(text, "PLANTED"); at >= 0 {
			t.Errorf("%s: got a secret: …%s…", name, text[max(0, at-60):min(len(text), at+30)])
		}
		if strings.Contains(text, subscriptionID) || strings.Contains(text, tenantID) {
			t.Errorf("%s: got the ID of a subscription or tenant, want another name", name)
		}
		if name != "contents.txt" && (!strings.Contains(text, "kept-before") || !strings.Contains(text, "kept-after")) {
			t.Errorf("%s: got no words around the secrets, want them kept", name)
		}
	}
	for name, has := range map[string]string{
		"objects/pods.yaml":              "kept-env",
		"objects/azvolumes.yaml":         "kind: AzVolume\n",
		"objects/events.yaml":            "FailoverHeldBack",
		"why.txt":                        "Cause: ReplicasMissing",
		"objects/volumeattachments.yaml": "/subscriptions/subscription-",
	} {
		if !strings.Contains(files[name], has) {
			t.Errorf("%s: got no %q, want it:\n%s", name, has, files[name])
		}
	}
	for name, hasNot := range map[string]string{
		"objects/volumeattachments.yaml": "other-driver", "objects/events.yaml": "other-drivers",
	} {
		if strings.Contains(files[name], hasNot) {
			t.Errorf("%s: got %q, which is another driver's", name, hasNot)
		}
	}
}

func TestABundleKeepsSubscriptionsOnRequest(t *testing.T) {
	t.Parallel()
	_, all := bundled(t)
	files := collectBundle(t, indexed(all...), func(o *collect.BundleOptions) { o.Subscriptions = true })
	for name, text := range files {
		if strings.Contains(text, "PLANTED") || name != "contents.txt" && !strings.Contains(text, subscriptionID) {
			t.Errorf("%s: got a secret, or no ID of the subscription", name)
		}
	}
}

func TestABundleSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	_, all := bundled(t)
	files := collectBundle(t, namespaced{indexed(all...)})
	if got := files["contents.txt"]; !strings.Contains(got, "Not read: azvolumes.disk.csi.azure.com: not allowed") {
		t.Errorf("with the rights of a namespace: got\n%s\nwant what was not read", got)
	}
	files = collectBundle(t, indexed(all...), func(o *collect.BundleOptions) {
		o.Log = func(context.Context, *corev1.Pod, string, bool) ([]byte, error) {
			return nil, errors.New("the kubelet is gone")
		}
	})
	if got := files["contents.txt"]; !strings.Contains(got, "Failed: read the log of container controller of pod azure-disk-csi/azuredisk-node-b: the kubelet is gone") {
		t.Errorf("without logs: got\n%s\nwant the reason", got)
	}
}
