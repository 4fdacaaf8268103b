package chart_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

// attack is something that an account tries. What must be possible stands beside it: a rule that
// refuses everything would pass otherwise.
type attack struct {
	what    string
	do      func(as client.Client) error
	allowed bool
}

// attacked is what the attacks are about: a volume of this driver and one of another, both of a
// claim of team-b, and the disk's record.
type attacked struct {
	kube                    client.Client
	volume, other           *corev1.PersistentVolume
	claim                   *corev1.PersistentVolumeClaim
	attachment, otherAttach *storagev1.VolumeAttachment
	teamA                   string
}

// patched returns an attack that changes an object and does not store it.
func patched[T client.Object](object T, change func(T)) func(client.Client) error {
	return func(as client.Client) error {
		before := object.DeepCopyObject().(T)
		after := object.DeepCopyObject().(T)
		change(after)
		return as.Patch(context.Background(), after, client.MergeFrom(before), client.DryRunAll)
	}
}

func created(object client.Object) func(client.Client) error {
	return func(as client.Client) error {
		return as.Create(context.Background(), object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

func deleted(object client.Object) func(client.Client) error {
	return func(as client.Client) error { return as.Delete(context.Background(), object, client.DryRunAll) }
}

func listed(list client.ObjectList, namespace string) func(client.Client) error {
	return func(as client.Client) error {
		return as.List(context.Background(), list, client.InNamespace(namespace))
	}
}

type (
	pvOf    = *corev1.PersistentVolume
	claimOf = *corev1.PersistentVolumeClaim
	vaOf    = *storagev1.VolumeAttachment
)

// The accounts of the chart, and users who are no administrators, try what docs/explanation/security.md
// says that they cannot do. The node plug-in and the scheduler try it in TestARealAPIServerTakesTheChart.
func TestAttacksAtARealAPIServer(t *testing.T) {
	kube, kubeconfig := apiserver.Client(t), apiserver.Kubeconfig(t)
	run := func(args ...string) {
		t.Helper()
		if output, err := helm(t, append(args, "--kubeconfig", kubeconfig, "-n", namespace)...); err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, output)
		}
	}
	legacy := apiserver.Namespace(t)
	servesSnapshots(t)
	run("install", release, chartDir(), "--create-namespace", "--take-ownership", "--set",
		"csiDriver.attachRequired=true,snapshot.enabled=true,volumeSnapshotClasses.azuredisk-snapshot=null,"+
			"inlineDisks.namespaces={"+legacy+"}")
	defer run("uninstall", release, "--no-hooks")
	w := newAttacked(t, kube)
	for account, attacks := range map[string][]attack{
		"csi-resizer":     w.byResizer(),
		"csi-attacher":    w.byAttacher(),
		"csi-provisioner": w.byProvisioner(),
		"csi-snapshotter": w.bySnapshotter(t),
	} {
		t.Run(account, func(t *testing.T) { try(t, clientWithToken(t, token(t, kube, account, nil)), attacks) })
	}
	t.Run("a tenant", func(t *testing.T) {
		try(t, w.tenant(t, "edit", w.teamA, "system:aggregate-to-edit", "system:aggregate-to-view"), w.byTenant())
	})
	t.Run("a tenant of a namespace with inline disks", func(t *testing.T) {
		try(t, kube, []attack{
			{"name a disk in a pod", created(w.podNaming(legacy)), true},
			{"elsewhere", created(w.podNaming(w.teamA)), false},
		})
	})
	t.Run("a reader of the driver's namespace", func(t *testing.T) {
		try(t, w.tenant(t, "view", namespace, "system:aggregate-to-view", release+"-view"), []attack{
			{"read the records", listed(&apiv1.AzVolumeList{}, namespace), true},
			{"read the sidecars' tokens", listed(&corev1.SecretList{}, namespace), false},
			{"delete a record", deleted(&apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}), false},
		})
	})
	t.Run("an ownership", func(t *testing.T) { w.forge(t) })
	t.Run("a node's report", func(t *testing.T) { w.flood(t) })
}

// try makes each attack when the first refusal and the first permission show that the API server
// knows the roles and the policies.
func try(t *testing.T, as client.Client, attacks []attack) {
	t.Helper()
	check := func(a attack) error {
		switch err := a.do(as); {
		case a.allowed && err != nil:
			return fmt.Errorf("%s: got %w, want it allowed", a.what, err)
		case !a.allowed && err == nil:
			return fmt.Errorf("%s: got no error, want it refused", a.what)
		case !a.allowed && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
			return fmt.Errorf("%s: got %w, want it refused", a.what, err)
		}
		return nil
	}
	eventually(t, "roles and policies are known", func() error {
		for _, a := range attacks {
			if err := check(a); err != nil {
				return err
			}
		}
		return nil
	})
}

func newAttacked(t *testing.T, kube client.Client) *attacked {
	t.Helper()
	w := &attacked{kube: kube, teamA: apiserver.Namespace(t)}
	teamB := apiserver.Namespace(t)
	w.claim, w.volume = boundClaim(teamB, "data")
	_, w.other = boundClaim(teamB, "other")
	w.other.Spec.CSI.Driver = "csi.example.com"
	w.volume.Finalizers = []string{"example.com/others"}
	attach := func(driver, pv string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: pv}, Spec: storagev1.VolumeAttachmentSpec{
				Attacher: driver, NodeName: "node", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
			},
		}
	}
	w.attachment, w.otherAttach = attach(w.volume.Spec.CSI.Driver, w.volume.Name), attach("csi.example.com", w.other.Name)
	for _, o := range []client.Object{w.claim, w.volume, w.other, w.attachment, w.otherAttach} {
		must(t, kube.Create(t.Context(), o))
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{w.attachment, w.otherAttach, w.claim, w.volume, w.other} {
			must(t, kube.Get(context.Background(), client.ObjectKeyFromObject(o), o))
			o.SetFinalizers(nil)
			must(t, kube.Update(context.Background(), o))
			must(t, client.IgnoreNotFound(kube.Delete(context.Background(), o)))
		}
	})
	return w
}

// onVolume are the changes of a PersistentVolume that no sidecar may make.
func (w *attacked) onVolume() []attack {
	return []attack{
		{"give a volume to another claim", patched(w.volume, func(v pvOf) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: w.teamA, Name: "mine"}
		}), false},
		{"have its disk deleted", patched(w.volume, func(v pvOf) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}), false},
		{"change its mount options", patched(w.volume, func(v pvOf) { v.Spec.MountOptions = []string{"suid"} }), false},
		{"have it deleted with an owner", patched(w.volume, func(v pvOf) {
			v.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "none", UID: "none"}}
		}), false},
		{"remove a finalizer of others", patched(w.volume, func(v pvOf) { v.Finalizers = nil }), false},
		{"label it", patched(w.volume, func(v pvOf) { v.Labels = map[string]string{"a": "b"} }), true},
		{"label a volume of another driver", patched(w.other, func(v pvOf) { v.Labels = map[string]string{"a": "b"} }), false},
		{"read Secrets", listed(&corev1.SecretList{}, namespace), false},
		{"read pods of a tenant", listed(&corev1.PodList{}, w.teamA), false},
		{"read the driver's records", listed(&apiv1.AzVolumeList{}, namespace), false},
	}
}

func larger(v pvOf) {
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
}

func (w *attacked) byResizer() []attack {
	return append(w.onVolume(),
		attack{"write the capacity", patched(w.volume, larger), true},
		attack{"write the capacity of another driver's", patched(w.other, larger), false},
		attack{"create a volume", created(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: w.volume.Spec}), false},
		attack{"delete a volume", deleted(w.volume), false})
}

func (w *attacked) byAttacher() []attack {
	const own = "external-attacher/disk-csi-azure-com"
	return append(w.onVolume(),
		attack{"write the capacity", patched(w.volume, larger), false},
		attack{"add its finalizer to a volume",
			patched(w.volume, func(v pvOf) { v.Finalizers = append(v.Finalizers, own) }), true},
		attack{"add another one", patched(w.volume, func(v pvOf) { v.Finalizers = append(v.Finalizers, "example.com/stay") }), false},
		attack{"add its finalizer to a VolumeAttachment",
			patched(w.attachment, func(v vaOf) { v.Finalizers = []string{own} }), true},
		attack{"the same with another driver's", patched(w.otherAttach, func(v vaOf) { v.Finalizers = []string{own} }), false},
		attack{"delete a VolumeAttachment", deleted(w.attachment), false},
		attack{"write to a Node", patched(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, func(n *corev1.Node) {
			n.Labels = map[string]string{"a": "b"}
		}), false})
}

func (w *attacked) byProvisioner() []attack {
	volume := func(change func(*corev1.PersistentVolumeSpec)) client.Object {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: *w.volume.Spec.DeepCopy()}
		change(&v.Spec)
		return v
	}
	secret := &corev1.SecretReference{Namespace: "kube-system", Name: "credential"}
	return append(w.onVolume(),
		attack{"create a volume", created(volume(func(*corev1.PersistentVolumeSpec) {})), true},
		attack{"one of a directory of the node", created(volume(func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		})), false},
		attack{"one with a Secret",
			created(volume(func(s *corev1.PersistentVolumeSpec) { s.CSI.NodeStageSecretRef = secret })), false},
		attack{"one of another driver", created(volume(func(s *corev1.PersistentVolumeSpec) { s.CSI.Driver = "csi.example.com" })), false},
		attack{"delete a volume", deleted(w.volume), true},
		attack{"delete one of another driver", deleted(w.other), false},
		attack{"protect the source of a clone", updated(w.claim, func(c claimOf) {
			c.Finalizers = append(c.Finalizers, "provisioner.storage.kubernetes.io/cloning-protection")
		}), true},
		attack{"keep a claim by another finalizer", updated(w.claim, func(c claimOf) {
			c.Finalizers = append(c.Finalizers, "example.com/stay")
		}), false},
		attack{"have a claim expanded", updated(w.claim, func(c claimOf) {
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		}), false})
}

// servesSnapshots defines VolumeSnapshotContents, as much of them as the API server needs to ask policies about them.
func servesSnapshots(t *testing.T) {
	t.Helper()
	keep := true
	options := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "volumesnapshotcontents.snapshot.storage.k8s.io",
			Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, in a test"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "snapshot.storage.k8s.io",
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "volumesnapshotcontents", Kind: "VolumeSnapshotContent"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
			}},
		},
	}}}
	_, err := envtest.InstallCRDs(apiserver.Config(t), options)
	must(t, err)
	kinds, err := discovery.NewDiscoveryClientForConfig(apiserver.Config(t))
	must(t, err)
	t.Cleanup(func() {
		must(t, envtest.UninstallCRDs(apiserver.Config(t), options))
		// The chart of the next test would serve snapshots.
		eventually(t, "the API server has no snapshots", func() error {
			if _, err := kinds.ServerResourcesForGroupVersion("snapshot.storage.k8s.io/v1"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %v, want NotFound", err) //nolint:errorlint // it may be nil
			}
			return nil
		})
	})
}

type contentOf = *unstructured.Unstructured

// content creates the content of a snapshot of team-b.
func (w *attacked) content(t *testing.T, driver string) contentOf {
	t.Helper()
	c := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1",
		"kind":       "VolumeSnapshotContent",
		"metadata": map[string]any{
			"name":       "content-of-" + strings.ReplaceAll(driver, ".", "-"),
			"finalizers": []any{"example.com/others"},
		},
		"spec": map[string]any{
			"driver":            driver,
			"deletionPolicy":    "Retain",
			"source":            map[string]any{"snapshotHandle": "mine"},
			"volumeSnapshotRef": map[string]any{"namespace": w.claim.Namespace, "name": "snapshot"},
		},
	}}
	must(t, w.kube.Create(t.Context(), c))
	t.Cleanup(func() {
		c.SetFinalizers(nil)
		must(t, w.kube.Update(context.Background(), c))
		must(t, w.kube.Delete(context.Background(), c))
	})
	return c
}

func (w *attacked) bySnapshotter(t *testing.T) []attack {
	own, other := w.content(t, w.volume.Spec.CSI.Driver), w.content(t, "csi.example.com")
	set := func(value any, fields ...string) func(contentOf) {
		return func(c contentOf) { must(t, unstructured.SetNestedField(c.Object, value, fields...)) }
	}
	label := set("b", "metadata", "labels", "a")
	written := func(c contentOf) func(client.Client) error {
		return func(as client.Client) error {
			after := c.DeepCopy()
			set("another", "status", "snapshotHandle")(after)
			return as.Status().Patch(context.Background(), after, client.MergeFrom(c), client.DryRunAll)
		}
	}
	const finalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	return []attack{
		{"label a content", patched(own, label), true},
		{"label a content of another driver", patched(other, label), false},
		{"give a content to another namespace", patched(own, set(w.teamA, "spec", "volumeSnapshotRef", "namespace")), false},
		{"have its snapshot deleted", patched(own, set("Delete", "spec", "deletionPolicy")), false},
		{"add its finalizer", patched(own, func(c contentOf) { c.SetFinalizers(append(c.GetFinalizers(), finalizer)) }), true},
		{"remove a finalizer of others", patched(own, func(c contentOf) { c.SetFinalizers(nil) }), false},
		{"write the status", written(own), true},
		{"write the status of another driver's", written(other), false},
		{"create a content", created(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1",
			"kind":       "VolumeSnapshotContent",
			"metadata":   map[string]any{"name": "new"},
			"spec":       map[string]any{"driver": w.volume.Spec.CSI.Driver},
		}}), false},
		{"delete a content", deleted(own), false},
		{"write to a volume", patched(w.volume, larger), false},
		{"read Secrets", listed(&corev1.SecretList{}, namespace), false},
	}
}

// updated returns an attack that writes a whole object and does not store it.
func updated[T client.Object](object T, change func(T)) func(client.Client) error {
	return func(as client.Client) error {
		after := object.DeepCopyObject().(T)
		change(after)
		return as.Update(context.Background(), after, client.DryRunAll)
	}
}

// tenant returns a client of a user with ClusterRoles in a namespace: those that edit and view
// aggregate, which no controller does here.
func (w *attacked) tenant(t *testing.T, name, in string, roles ...string) client.Client {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.teamA, Name: "user-" + name}}
	must(t, w.kube.Create(t.Context(), account))
	for i, role := range roles {
		must(t, w.kube.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: fmt.Sprintf("user-%s-%d", name, i)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.teamA, Name: account.Name}},
		}))
	}
	request := &authenticationv1.TokenRequest{}
	must(t, w.kube.SubResource("token").Create(t.Context(), account, request))
	return clientWithToken(t, request.Status.Token)
}

// podNaming is a pod that names the disk of the volume without a claim.
func (w *attacked) podNaming(namespace string) *corev1.Pod {
	p, kind := podWith(namespace, "tenant"), corev1.AzureManagedDisk
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{
		DiskName: "d", DataDiskURI: w.volume.Spec.CSI.VolumeHandle, Kind: &kind,
	}}}}
	return p
}

func (w *attacked) byTenant() []attack {
	placed := w.podNaming(w.teamA)
	placed.Spec.NodeName = "node"
	return []attack{
		{"create a pod", created(podWith(w.teamA, "tenant")), true},
		{"name a disk in a pod", created(w.podNaming(w.teamA)), false},
		{"name a disk in a pod on a node", created(placed), false},
		{"create a pod in the driver's namespace", created(podWith(namespace, "tenant")), false},
		{"create a volume", created(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: w.volume.Spec}), false},
		{"create a StorageClass", created(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Provisioner: "x"}), false},
		{"create a VolumeAttachment", created(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "new"},
			Spec: w.attachment.Spec}), false},
		{"create a record", created(&apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}}), false},
		{"read the driver's records", listed(&apiv1.AzVolumeList{}, namespace), false},
		{"read Azure's credential", listed(&corev1.SecretList{}, namespace), false},
		{"get a token of the controller", func(as client.Client) error {
			return as.SubResource("token").Create(context.Background(), &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release + "-controller"},
			}, &authenticationv1.TokenRequest{}, client.DryRunAll)
		}, false},
	}
}

// forge writes ownerships that the definition refuses even to the controller.
func (w *attacked) forge(t *testing.T) {
	v := &apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forged"}}
	v.Spec = apiv1.AzVolumeSpec{
		Origin: apiv1.OriginAdopted, Access: apiv1.AccessSingleNode, CapacityBytes: 1 << 30,
		Disk: apiv1.DiskParameters{SubscriptionID: "00000000-0000-0000-0000-000000000001", ResourceGroup: "g",
			Name: "forged", MaxShares: 1, CachingMode: "None",
			DiskSettings: apiv1.DiskSettings{SKUName: "Premium_LRS"}},
	}
	must(t, w.kube.Create(t.Context(), v))
	defer func() { must(t, w.kube.Delete(t.Context(), v)) }()
	v.Status.Primary = &apiv1.Ownership{NodeName: "node", Epoch: 5, State: apiv1.OwnershipHeld}
	must(t, w.kube.Status().Update(t.Context(), v))
	for what, change := range map[string]func(*apiv1.AzVolume){
		"an earlier epoch": func(v *apiv1.AzVolume) { v.Status.Primary.Epoch = 4 },
		"another node":     func(v *apiv1.AzVolume) { v.Status.Primary.NodeName = "other" },
		"no ownership":     func(v *apiv1.AzVolume) { v.Status.Primary = nil },
		"no status":        func(v *apiv1.AzVolume) { v.Status = apiv1.AzVolumeStatus{} },
	} {
		forged := v.DeepCopy()
		change(forged)
		err := w.kube.Status().Update(t.Context(), forged)
		if !apierrors.IsInvalid(err) || strings.Contains(err.Error(), "conflict") {
			t.Errorf("%s: got %v, want Invalid", what, err)
		}
	}
}

// flood writes reports that are as long as the definition allows, and longer ones. It refuses them even to the controller, so
// the node plug-in, which writes the report, cannot store them either.
func (w *attacked) flood(t *testing.T) {
	mosts := map[string]int{"staged volumes": 128, "fence requests": 64, "fence results": 128}
	node := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "flooded"},
		Spec: apiv1.AzDriverNodeSpec{VMID: "/vm"}}
	must(t, w.kube.Create(t.Context(), node))
	t.Cleanup(func() { must(t, w.kube.Delete(context.Background(), node)) })
	name := func(i int) string { return fmt.Sprintf("volume-%d", i) }
	var attacks []attack
	for what, add := range map[string]func(*apiv1.AzDriverNodeStatus, int){
		"staged volumes": func(s *apiv1.AzDriverNodeStatus, i int) {
			s.StagedVolumes = append(s.StagedVolumes, apiv1.StagedVolume{VolumeName: name(i), Phase: apiv1.PhaseStaged})
		},
		"fence results": func(s *apiv1.AzDriverNodeStatus, i int) {
			s.FenceResults = append(s.FenceResults, apiv1.FenceResult{VolumeName: name(i), NodeName: "n", Epoch: 1,
				Message: "no", RequestTime: metav1.NowMicro(), ResultTime: metav1.NowMicro()})
		},
	} {
		most := mosts[what]
		for _, n := range []int{most, most + 1} {
			attacks = append(attacks, attack{fmt.Sprintf("report %d %s", n, what), func(as client.Client) error {
				report := node.DeepCopy()
				for i := range n {
					add(&report.Status, i)
				}
				return as.Status().Update(context.Background(), report, client.DryRunAll)
			}, n == most})
		}
	}
	try(t, w.kube, attacks)
}
