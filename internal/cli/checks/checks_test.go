package checks_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const driverName = "disk.csi.azure.com"

// authority returns the certificate of an authority that ends after a time from now.
func authority(ends time.Duration) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: objects.Now.Add(-48 * time.Hour), NotAfter: objects.Now.Add(ends), IsCA: true,
		BasicConstraintsValid: true,
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made})
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "azure-disk-csi", Name: name, CreationTimestamp: *objects.Ago(time.Hour)}
}

func ofChart(component string) metav1.ObjectMeta {
	m := named("azuredisk-" + component)
	m.Labels = map[string]string{explain.LabelPartOf: "azuredisk", "app.kubernetes.io/component": component}
	return m
}

func definition(name string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, v := range versions {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: true})
	}
	d.Status.StoredVersions = versions
	return d
}

func pods(args []string, names ...string) corev1.PodTemplateSpec {
	var containers []corev1.Container
	for i, name := range names {
		c := corev1.Container{Name: name, Image: "registry.example.com/azuredisk:0.1.0"}
		if i == 0 {
			c.Args = args
		}
		containers = append(containers, c)
	}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers}}
}

func notCreated(kind, name, message string, ago time.Duration) *corev1.Event {
	return &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Message: message, LastTimestamp: *objects.Ago(ago),
	}
}

// healthy is an installation on two nodes without a fault, in a cluster into which the driver could
// also be installed.
func healthy() checks.Facts {
	args := []string{"--driver-name=" + driverName, "--attach-required=false"}
	f := checks.Facts{
		Now: objects.Now, DriverName: driverName, DriverNamespace: "azure-disk-csi", Program: "0.1.0", Kubernetes: "v1.37.2",
		CSIDriver: &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)},
		},
		Deployments: []*appsv1.Deployment{{
			ObjectMeta: ofChart("controller"),
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2)),
				Template: pods(args, "controller", "csi-provisioner", "csi-resizer")},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
		}, {
			ObjectMeta: ofChart("scheduler"),
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(2)), Template: pods(args[:1], "extender")},
			Status:     appsv1.DeploymentStatus{ReadyReplicas: 2},
		}},
		DaemonSets: []*appsv1.DaemonSet{{
			ObjectMeta: ofChart("node"), Spec: appsv1.DaemonSetSpec{Template: pods(args, "node")},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: 2},
		}},
		Webhooks: []*admissionv1.MutatingWebhookConfiguration{{
			ObjectMeta: ofChart("scheduler"),
			Webhooks: []admissionv1.MutatingWebhook{{
				Name: "steer-pods." + driverName,
				ClientConfig: admissionv1.WebhookClientConfig{
					CABundle: authority(24 * time.Hour),
					Service:  &admissionv1.ServiceReference{Name: "azuredisk-scheduler"},
				},
			}},
		}},
		Slices: []*discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/service-name": "azuredisk-scheduler"}},
			Endpoints:  []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		}},
		Volumes: []*apiv1.AzVolume{objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld))},
		Attachments: []*apiv1.AzVolumeAttachment{
			objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached),
			objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached),
		},
	}
	for _, name := range []string{explain.AzVolumes, explain.AzAttachments, explain.AzDriverNodes} {
		f.Definitions = append(f.Definitions, definition(name, "v1"))
	}
	for _, name := range []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"} {
		f.Definitions = append(f.Definitions, definition(name+".snapshot.storage.k8s.io", "v1"))
	}
	for _, name := range []string{explain.LeaseController, "disk-csi-azure-com", "external-resizer-disk-csi-azure-com"} {
		f.Leases = append(f.Leases, &coordinationv1.Lease{ObjectMeta: named(name), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("controller"), LeaseDurationSeconds: ptr.To(int32(15)),
			RenewTime: &metav1.MicroTime{Time: objects.Now},
		}})
	}
	for _, name := range []string{"a", "b"} {
		f.Nodes = append(f.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelOSStable: "linux", corev1.LabelTopologyRegion: "eastus",
				"kubernetes.azure.com/cluster": "MC_g_c_eastus",
			}},
			Spec:   corev1.NodeSpec{ProviderID: "azure:///subscriptions/s1/resourceGroups/mc/providers/Microsoft.Compute/virtualMachines/" + name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		f.CSINodes = append(f.CSINodes, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: name}}},
		})
		d := objects.Report(name)
		d.CreationTimestamp, d.Spec.VMSize = *objects.Ago(time.Hour), "size"
		d.Status.DriverVersion, d.Status.HeartbeatPeriodSeconds = "0.1.0", 10
		d.Status.HeartbeatTime = &metav1.MicroTime{Time: objects.Now.Add(-5 * time.Second)}
		d.Status.Capacity = &apiv1.NodeCapacity{MaxDataDisks: 8, VMSize: "size"}
		d.Status.Conditions = []metav1.Condition{
			{Type: apiv1.NodeConditionPluginReady, Status: metav1.ConditionTrue},
			{Type: apiv1.NodeConditionProbeable, Status: metav1.ConditionTrue, Reason: apiv1.ReasonAnswersProbes},
		}
		judged(d, nodehealth.Judgement{State: nodehealth.Healthy})
		f.DriverNodes = append(f.DriverNodes, d)
	}
	return f
}

func judged(d *apiv1.AzDriverNode, j nodehealth.Judgement) {
	meta.SetStatusCondition(&d.Status.Conditions, nodehealth.Condition(j))
}

func condition(all *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason string) {
	meta.SetStatusCondition(all, metav1.Condition{
		Type: kind, Status: status, Reason: reason, LastTransitionTime: *objects.Ago(time.Hour),
	})
}

// before is the cluster before the installation.
func before() checks.Facts {
	f := healthy()
	f.CSIDriver = nil
	f.Definitions = f.Definitions[3:]
	return f
}

func attachedBy(name string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: named(name), Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName}}
}

type fault struct {
	change func(*checks.Facts)
	check  string
	want   checks.Result
	says   string
}

func refusedBy(code string, kind provisioner.Kind) func(*checks.Facts) {
	return func(f *checks.Facts) {
		f.Volumes[0].Status.Error = &apiv1.Error{Reason: string(kind), Code: code, Message: "Azure says " + code}
	}
}

func doctorFaults() map[string]fault {
	return map[string]fault{
		"a definition is missing": {func(f *checks.Facts) { f.Definitions = f.Definitions[1:] }, "Definitions", checks.Failed,
			"azvolumes.disk.csi.azure.com does not exist"},
		"a definition without the version": {func(f *checks.Facts) { f.Definitions[0].Spec.Versions[0].Served = false },
			"Definitions", checks.Failed, "is not served in the version v1"},
		"a definition of the preview": {
			func(f *checks.Facts) { f.Definitions[0].Status.StoredVersions = []string{"v1beta2", "v1"} }, "PreviewDefinitions",
			checks.Failed, "stored in the version v1beta2"},
		"no CSIDriver": {func(f *checks.Facts) { f.CSIDriver = nil }, "CSIDriver", checks.Failed, "there is no CSIDriver"},
		"the mode of the CSIDriver differs": {
			func(f *checks.Facts) {
				f.DaemonSets[0].Spec.Template.Spec.Containers[0].Args[1] = "--attach-required=true"
			},
			"CSIDriver", checks.Failed, "DaemonSet azuredisk-node is set to attachRequired true"},
		"nodes with another version": {func(f *checks.Facts) { f.DriverNodes[1].Status.DriverVersion = "0.2.0" }, "Versions",
			checks.Warning, "0.1.0 on a, 0.2.0 on b"},
		"another image for the nodes": {
			func(f *checks.Facts) { f.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "other:1" }, "Versions",
			checks.Warning, "has the image other:1"},
		"another version of the program": {func(f *checks.Facts) { f.Program = "0.3.0" }, "Versions", checks.Warning,
			"this program is 0.3.0"},
		"no ready controller": {func(f *checks.Facts) { f.Deployments[0].Status.ReadyReplicas = 0 }, "Controller", checks.Failed,
			"no ready pod"},
		"a policy refuses the controller's pods": {func(f *checks.Facts) {
			f.Deployments[0].Status.ReadyReplicas = 0
			f.Uncreated = []*corev1.Event{notCreated("ReplicaSet", "azuredisk-controller-1", "pod a is forbidden", time.Minute)}
		}, "Controller", checks.Failed, "no ready pod: pod a is forbidden"},
		"a policy refuses the node plug-in's pods": {func(f *checks.Facts) {
			f.DaemonSets[0].Status.NumberReady = 0
			f.Uncreated = []*corev1.Event{
				notCreated("DaemonSet", "azuredisk-node", "the former reason", time.Hour),
				notCreated("DaemonSet", "azuredisk-node", "hostNetwork is set", time.Minute),
				notCreated("DaemonSet", "other", "something else", 0),
			}
		}, "NodePlugins", checks.Failed, "no ready pod: hostNetwork is set"},
		"one controller of two": {func(f *checks.Facts) { f.Deployments[0].Status.ReadyReplicas = 1 }, "Controller",
			checks.Warning, "1 of 2"},
		"no leader": {func(f *checks.Facts) { f.Leases[0].Spec.RenewTime.Time = objects.Now.Add(-time.Hour) }, "Leader",
			checks.Failed, "was renewed last at 11:00:00"},
		"a webhook that does not answer": {func(f *checks.Facts) {
			f.Trials = []checks.Trial{{What: "a lease", Err: apierrors.NewInternalError(errors.New(`failed calling webhook "x.y"`))}}
		}, "Admission", checks.Failed, `a lease: Internal error occurred: failed calling webhook "x.y"`},
		"a webhook that is asked about leases": {
			closed(func(*admissionv1.ValidatingWebhook) {}), "FailClosedWebhooks", checks.Warning,
			"the webhook x.y of ValidatingWebhookConfiguration policy fails closed, and is asked about leases, azvolumes, events, pods"},
		"a sidecar does not lead": {func(f *checks.Facts) { f.Leases = f.Leases[:2] }, "Sidecars", checks.Failed,
			"csi-resizer does not lead: the lease external-resizer-disk-csi-azure-com does not exist"},
		"a sidecar is missing": {func(f *checks.Facts) {
			f.Deployments[0].Spec.Template.Spec.Containers = f.Deployments[0].Spec.Template.Spec.Containers[:1]
		}, "Sidecars", checks.Failed, "no container csi-provisioner"},
		"a node plug-in is not ready": {func(f *checks.Facts) { f.DaemonSets[0].Status.NumberReady = 1 }, "NodePlugins",
			checks.Warning, "1 of 2"},
		"a node is not registered": {func(f *checks.Facts) { f.CSINodes[1].Spec.Drivers = nil }, "Registered", checks.Failed,
			"the CSINode of node b does not list the driver"},
		"a node has not reported": {func(f *checks.Facts) { f.DriverNodes = f.DriverNodes[:1] }, "Registered", checks.Failed,
			"the node plug-in of node b has not reported"},
		"a VM that is not known": {func(f *checks.Facts) {
			condition(&f.DriverNodes[0].Status.Conditions, apiv1.NodeConditionVMKnown, metav1.ConditionFalse, "VMNamedTwice")
		}, "Registered", checks.Failed, "node a: VMNamedTwice"},
		"a stale heartbeat": {func(f *checks.Facts) {
			judged(f.DriverNodes[0], nodehealth.Judgement{State: nodehealth.Suspect, Evidence: "no heartbeat"})
		}, "Heartbeats", checks.Warning, "node a is Suspect: no heartbeat"},
		"a node that reports and is not Ready": {func(f *checks.Facts) {
			f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
		}, "Heartbeats", checks.Warning, "does not see node a as Ready"},
		"a lost node": {func(f *checks.Facts) {
			judged(f.DriverNodes[0], nodehealth.Judgement{State: nodehealth.Lost, Evidence: "no heartbeat"})
		}, "Heartbeats", checks.Failed, "node a is Lost"},
		"the guard holds a failover back": {func(f *checks.Facts) {
			judged(f.DriverNodes[0], nodehealth.Judgement{
				State: nodehealth.Lost, MassLoss: true, HeldBack: "2 of 2 nodes seem lost",
			})
		}, "Heartbeats", checks.Failed, "2 of 2 nodes seem lost"},
		"no probe reaches a node": {func(f *checks.Facts) {
			condition(&f.DriverNodes[1].Status.Conditions, apiv1.NodeConditionProbeable, metav1.ConditionUnknown,
				apiv1.ReasonNotYetKnown)
		}, "Probes", checks.Warning, "no probe has reached b"},
		"probes fail": {func(f *checks.Facts) {
			condition(&f.DriverNodes[1].Status.Conditions, apiv1.NodeConditionProbeable, metav1.ConditionFalse,
				apiv1.ReasonProbesContradicted)
		}, "Probes", checks.Warning, "node b: heartbeats arrive, and probes fail"},
		"no webhook and no extender": {func(f *checks.Facts) { f.Deployments = f.Deployments[:1] }, "Steering", checks.Warning,
			"none is deployed"},
		"no pod of the webhook is ready": {func(f *checks.Facts) { f.Deployments[1].Status.ReadyReplicas = 0 }, "Steering",
			checks.Failed, "no ready pod"},
		"the webhook's Service has no endpoint": {func(f *checks.Facts) { f.Slices[0].Endpoints = nil }, "Steering",
			checks.Failed, "no ready endpoint"},
		"the webhook has no authority": {func(f *checks.Facts) { f.Webhooks[0].Webhooks[0].ClientConfig.CABundle = nil },
			"Steering", checks.Failed, "its caBundle is empty"},
		"the webhook's authority has expired": {func(f *checks.Facts) {
			f.Webhooks[0].Webhooks[0].ClientConfig.CABundle = authority(-time.Hour)
		}, "Steering", checks.Failed, "was valid until"},
		"a volume without its replica": {func(f *checks.Facts) {
			condition(&f.Volumes[0].Status.Conditions, apiv1.VolumeConditionReplicasAttached, metav1.ConditionFalse,
				apiv1.ReasonReplicasMissing)
		}, "Replicas", checks.Warning, "AzVolume vol lacks replicas"},
		"a VolumeAttachment that nothing needs": {func(f *checks.Facts) {
			f.VolumeAttachments = []*storagev1.VolumeAttachment{attachedBy("csi-1")}
		}, "VolumeAttachments", checks.Warning, "VolumeAttachment csi-1"},
		"an attachment whose deletion does not end": {
			func(f *checks.Facts) { f.Attachments[1].DeletionTimestamp = objects.Ago(time.Hour) }, "Records", checks.Warning,
			"to node b has been deleted for 1h0m0s"},
		"an attachment without its volume": {func(f *checks.Facts) { f.Volumes = nil }, "Records", checks.Warning,
			"a volume that does not exist"},
		"a reservation that is left over": {func(f *checks.Facts) {
			condition(&f.DriverNodes[1].Status.Conditions, apiv1.NodeConditionGuards, metav1.ConditionTrue, "Kept")
		}, "Records", checks.Warning, "node b keeps reservations"},
		"no slot is free": {func(f *checks.Facts) { f.DriverNodes[0].Status.Capacity.MaxDataDisks = 1 }, "Slots", checks.Warning,
			"no slot is free on a"},
		"a disk waits for a slot": {func(f *checks.Facts) {
			condition(&f.Attachments[0].Status.Conditions, apiv1.AttachmentConditionAttached, metav1.ConditionFalse,
				apiv1.ReasonNoDiskSlot)
		}, "Slots", checks.Failed, "volume vol waits for a slot on node a"},
		"a clock that is ahead": {
			func(f *checks.Facts) { f.DriverNodes[0].Status.HeartbeatTime.Time = objects.Now.Add(time.Minute) }, "Clocks",
			checks.Warning, "the clock of node a is 1m0s ahead"},
		"a clock that is behind": {
			func(f *checks.Facts) { f.DriverNodes[0].Status.HeartbeatTime.Time = objects.Now.Add(-time.Hour) }, "Clocks",
			checks.Warning, "the clock of node a is about 59m50s behind"},
		"credentials that are refused": {refusedBy("ExpiredAuthenticationToken", provisioner.Unauthorized), "Credentials",
			checks.Failed, "Unauthenticated, AzVolume vol: Azure says ExpiredAuthenticationToken"},
		"a permission that is missing": {refusedBy("AuthorizationFailed", provisioner.Unauthorized), "Permissions", checks.Failed,
			"PermissionMissing"},
		"a deny assignment": {refusedBy("DenyAssignmentAuthorizationFailed", provisioner.Unauthorized), "Permissions",
			checks.Failed, "DenyAssignment"},
		"a quota that is used up": {refusedBy("QuotaExceeded", provisioner.InsufficientCapacity), "Quota", checks.Failed,
			"QuotaExceeded"},
		"an identity of the controller's node": {func(f *checks.Facts) {
			pod := &f.Deployment(explain.ControllerComponent).Spec.Template.Spec
			pod.Containers[0].Args = append(slices.Clip(pod.Containers[0].Args), "--cloud-config=")
		}, "NodeIdentity", checks.Warning, "identity of its node"},
		"the file of an AKS node": {func(f *checks.Facts) {
			pod := &f.Deployment(explain.ControllerComponent).Spec.Template.Spec
			pod.Containers[0].Args = append(slices.Clip(pod.Containers[0].Args), "--cloud-config=/etc/kubernetes/azure.json")
			host := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}
			pod.Volumes = []corev1.Volume{{Name: "cloud", VolumeSource: host}}
			f.Nodes[0].Labels = map[string]string{"kubernetes.azure.com/cluster": "MC_group"}
		}, "NodeIdentity", checks.Warning, "/etc/kubernetes/azure.json"},
		"replicas on all nodes where nodes are told apart": {func(f *checks.Facts) {
			f.Nodes[0].Labels = map[string]string{"node-restriction.kubernetes.io/pool": "shop"}
			f.Volumes = []*apiv1.AzVolume{objects.NewVolume(func(v *apiv1.AzVolume) { v.Spec.MaxMountReplicaCount = 1 })}
		}, "ReplicaNodes", checks.Warning, "node-restriction.kubernetes.io/pool"},
		"a write that was refused": {func(f *checks.Facts) {
			f.Refusals = []*corev1.Event{{
				InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "a"}, Message: "cannot taint",
				LastTimestamp: *objects.Ago(time.Minute),
			}}
		}, "Writes", checks.Failed, "node a: cannot taint"},
	}
}

func preflightFaults() map[string]fault {
	type policyOf = *admissionv1.ValidatingAdmissionPolicy
	type bindingOf = *admissionv1.ValidatingAdmissionPolicyBinding
	policy := func(change func(policyOf, bindingOf)) func(*checks.Facts) {
		return func(f *checks.Facts) {
			p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "baseline"}}
			p.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{Rule: admissionv1.Rule{Resources: []string{"pods"}}},
			}}}
			p.Spec.Validations = []admissionv1.Validation{{Expression: "!object.spec.containers.exists(c, c.securityContext.privileged)"}}
			b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
			b.Spec.PolicyName, b.Spec.ValidationActions = "baseline", []admissionv1.ValidationAction{admissionv1.Deny}
			change(p, b)
			f.Policies, f.Bindings = append(f.Policies, p), append(f.Bindings, b)
		}
	}
	pod := func(name string, labels map[string]string, spec corev1.PodSpec) func(*checks.Facts) {
		return func(f *checks.Facts) {
			of := metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels}
			f.Pods = append(f.Pods, &corev1.Pod{ObjectMeta: of, Spec: spec})
		}
	}
	listens := []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 29703}}}}
	constraint := func(action string, excluded ...string) func(*checks.Facts) {
		return func(f *checks.Facts) {
			f.Constraints = []checks.Constraint{{Kind: "K8sAzureV2NoPrivilege", Name: "x", Action: action, Excluded: excluded}}
		}
	}
	return map[string]fault{
		"a Kubernetes that is too old": {func(f *checks.Facts) { f.Kubernetes = "v1.33.1" }, "Kubernetes", checks.Failed,
			"v1.33.1"},
		"a Kubernetes that is too new": {func(f *checks.Facts) { f.Kubernetes = "v1.38.0-aks" }, "Kubernetes", checks.Warning,
			"not been tested"},
		"a Windows node": {func(f *checks.Facts) { f.Nodes[1].Labels[corev1.LabelOSStable] = "windows" }, "Nodes", checks.Warning,
			"b has Windows"},
		"a node that is no VM of Azure": {func(f *checks.Facts) { f.Nodes[0].Spec.ProviderID = "kind://a" }, "Nodes",
			checks.Warning, "a is no VM"},
		"no definitions of snapshots": {func(f *checks.Facts) { f.Definitions = nil }, "SnapshotDefinitions", checks.Warning,
			"the cluster has no volumesnapshots"},
		"a definition of the preview": {
			func(f *checks.Facts) { f.Definitions = append(f.Definitions, definition(explain.AzVolumes, "v1beta2")) },
			"StoredPreview", checks.Failed, "v1beta2"},
		"AKS's own driver runs": {pod("csi-azuredisk-node-1", map[string]string{"app": "csi-azuredisk-node"}, corev1.PodSpec{}),
			"OtherDriver", checks.Failed, "pods of V1 run in namespace kube-system"},
		"a CSIDriver is left": {func(f *checks.Facts) { f.CSIDriver = healthy().CSIDriver }, "OtherDriver", checks.Warning,
			"of another driver is left"},
		"VolumeAttachments are left": {func(f *checks.Facts) {
			f.VolumeAttachments = []*storagev1.VolumeAttachment{attachedBy("csi-1")}
		}, "VolumesAttached", checks.Warning, "there are 1"},
		"a port that is taken in the host's network": {
			pod("other", nil, corev1.PodSpec{HostNetwork: true, NodeName: "a", Containers: listens}), "HostPorts", checks.Failed,
			"port 29703 is taken on a by kube-system/other"},
		"a hostPort that is taken": {pod("other", nil, corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 29705}},
		}}}), "HostPorts", checks.Failed, "port 29705"},
		"a restricted namespace": {func(f *checks.Facts) {
			f.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				"pod-security.kubernetes.io/enforce": "restricted",
			}}}
		}, "PodSecurity", checks.Failed, "enforces the level restricted"},
		"a policy that is enforced": {policy(func(policyOf, bindingOf) {}), "Policies", checks.Warning,
			"ValidatingAdmissionPolicy baseline is enforced by all"},
		"a constraint that is enforced": {constraint("deny", "kube-*"), "Policies", checks.Failed, "K8sAzureV2NoPrivilege x"},
		"a webhook that fails closed": {closed(func(w *admissionv1.ValidatingWebhook) {
			w.Rules[0].Resources = []string{"pods"}
		}), "FailClosedWebhooks", checks.Warning, "and is asked about pods"},
		"a webhook that changes objects, and fails closed": {func(f *checks.Facts) {
			f.Webhooks = append(f.Webhooks, &admissionv1.MutatingWebhookConfiguration{
				ObjectMeta: named("mesh"), Webhooks: []admissionv1.MutatingWebhook{{Name: "m.y", Rules: everything()}},
			})
		}, "FailClosedWebhooks", checks.Warning, "the webhook m.y of MutatingWebhookConfiguration mesh"},
		// And without a fault:
		"a webhook that fails open": {closed(func(w *admissionv1.ValidatingWebhook) {
			w.FailurePolicy = ptr.To(admissionv1.Ignore)
		}), "FailClosedWebhooks", checks.OK, ""},
		"a webhook that excludes the namespace": {closed(func(w *admissionv1.ValidatingWebhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key:      corev1.LabelMetadataName,
				Operator: metav1.LabelSelectorOpNotIn,
				Values:   []string{"kube-system", "azure-disk-csi"},
			}}}
		}), "FailClosedWebhooks", checks.OK, ""},
		"a webhook for objects with a label": {closed(func(w *admissionv1.ValidatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		}), "FailClosedWebhooks", checks.OK, ""},
		"a webhook for deletions": {closed(func(w *admissionv1.ValidatingWebhook) {
			w.Rules[0].Operations = []admissionv1.OperationType{admissionv1.Delete}
		}), "FailClosedWebhooks", checks.OK, ""},
		"a policy that only warns": {policy(func(_ policyOf, b bindingOf) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}), "Policies", checks.OK, ""},
		"a policy that excludes the namespace": {policy(func(p policyOf, _ bindingOf) {
			p.Spec.MatchConditions = []admissionv1.MatchCondition{{Expression: `!(request.namespace in ["azure-disk-csi"])`}}
		}), "Policies", checks.OK, ""},
		"a constraint that only warns":             {constraint("warn"), "Policies", checks.OK, ""},
		"a constraint that excludes the namespace": {constraint("", "azure-*"), "Policies", checks.OK, ""},
		"a pod with the port in its own network": {pod("other", nil, corev1.PodSpec{Containers: listens}),
			"HostPorts", checks.OK, ""},
	}
}

func everything() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}
}

// closed adds a webhook that fails closed and is asked about all objects, unless it is changed.
func closed(change func(*admissionv1.ValidatingWebhook)) func(*checks.Facts) {
	return func(f *checks.Facts) {
		w := admissionv1.ValidatingWebhook{Name: "x.y", Rules: everything()}
		change(&w)
		f.Validating = []*admissionv1.ValidatingWebhookConfiguration{{
			ObjectMeta: named("policy"), Webhooks: []admissionv1.ValidatingWebhook{w},
		}}
	}
}

// compare stages each fault, and wants it found by its check and by no other.
func compare(t *testing.T, facts func() checks.Facts, judge func(checks.Facts) checks.Report, faults map[string]fault) {
	t.Helper()
	if report := judge(facts()); report.Outcome != cause.Healthy {
		t.Fatalf("without a fault: got %s:\n%s\nwant Healthy", report.Outcome, report.Text())
	}
	for name, test := range faults {
		t.Run(name, func(t *testing.T) {
			f := facts()
			test.change(&f)
			report := judge(f)
			for _, l := range report.Lines {
				switch {
				case l.Check == test.check && (l.Result != test.want || !strings.Contains(l.Says, test.says)):
					t.Errorf("%s: got %s, %q, want %s with %q", l.Check, l.Result, l.Says, test.want, test.says)
				case l.Check != test.check && (l.Result == checks.Warning || l.Result == checks.Failed):
					t.Errorf("%s: got %s, %q, want only %s to find it", l.Check, l.Result, l.Says, test.check)
				}
				if l.Result != checks.OK && l.Next == "" {
					t.Errorf("%s: got nothing to do, want a remedy", l.Check)
				}
			}
			want := map[checks.Result]int{checks.OK: 0, checks.Warning: 1, checks.Failed: 2}[test.want]
			if got := report.Outcome.ExitCode(); got != want {
				t.Errorf("got exit code %d, want %d", got, want)
			}
		})
	}
}

func TestDoctorFindsEachFault(t *testing.T) {
	t.Parallel()
	compare(t, healthy, checks.Doctor, doctorFaults())
}

func TestPreflightFindsEachFault(t *testing.T) {
	t.Parallel()
	compare(t, before, checks.Preflight, preflightFaults())
}

// TestEachCheckHasAFault: a check that no fault reaches is not tested.
func TestEachCheckHasAFault(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]struct {
		all    []checks.Check
		faults map[string]fault
	}{"doctor": {checks.DoctorChecks(), doctorFaults()}, "preflight": {checks.PreflightChecks(), preflightFaults()}} {
		found, ids := map[string]bool{}, map[string]bool{}
		for _, f := range list.faults {
			found[f.check] = found[f.check] || f.want != checks.OK
		}
		for _, c := range list.all {
			if ids[c.ID] || !strings.HasSuffix(c.Asks, ".") || c.Next == "" || strings.HasSuffix(c.Next, ".") {
				t.Errorf("%s: got %s, %q, %q, want an ID of its own, a sentence, and a remedy without a full stop", name, c.ID, c.Asks, c.Next)
			}
			ids[c.ID] = true
			if !found[c.ID] && !c.AsksAzure() {
				t.Errorf("%s: got no fault for %s, want one", name, c.ID)
			}
		}
	}
}

func TestWhatCannotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Unread = []explain.Unread{{What: explain.Leases, Why: "not allowed"}}
	report := checks.Doctor(f)
	for _, l := range report.Lines {
		want := slices.Contains([]string{"Leader", "Sidecars", "Clocks"}, l.Check)
		if (l.Result == checks.CannotTell) != want {
			t.Errorf("%s: got %s, want %s: %t", l.Check, l.Result, checks.CannotTell, want)
		}
	}
	if report.Outcome != cause.CannotTell {
		t.Errorf("got %s, want %s", report.Outcome, cause.CannotTell)
	}
}

// A webhook with side effects refuses to be tried, which says nothing about its answer.
func TestAWriteThatCannotBeTriedIsNotJudged(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Trials = []checks.Trial{{What: "a lease", Err: apierrors.NewBadRequest("admission webhook does not support dry run")}}
	for _, l := range checks.Doctor(f).Lines {
		if l.Check == "Admission" && (l.Result != checks.CannotTell || !strings.Contains(l.Says, "does not support dry run")) {
			t.Errorf("got %s, %q, want %s with the answer", l.Result, l.Says, checks.CannotTell)
		}
	}
}

func TestAReportHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Trials = []checks.Trial{{What: "a lease", Err: errors.New("denied\x1b[2K\nAdmission ok\tx")}}
	if text := checks.Doctor(f).Text(); !strings.Contains(text, `denied\u001b[2K Admission ok x`) {
		t.Errorf("got:\n%s\nwant the answer on one line, with its control characters escaped", text)
	}
}

func TestWhatOnlyAzureKnowsIsAsked(t *testing.T) {
	t.Parallel()
	text := checks.Preflight(before()).Text()
	for _, want := range []string{
		"nodeResourceGroup=='MC_g_c_eastus'", "--subscription s1", "az vm list-skus --location eastus",
		"az vm list-usage --location eastus",
		"only Azure knows: The node resource group",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got:\n%s\nwant a text with %q", text, want)
		}
	}
}

// Nodes that have not reported a version do not count.
func TestVersionsOfAnInstallation(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.DriverNodes = nil
	f.Program, f.Kubernetes = "v1.1.0", "v1.37.2"
	for i, version := range []string{"v1.1.0", "", "v1.0.0", "v1.1.0"} {
		d := objects.Report(string(rune('a' + i)))
		d.Status.DriverVersion = version
		f.DriverNodes = append(f.DriverNodes, d)
	}
	f.Unread = []explain.Unread{{What: explain.Leases, Reason: explain.UnreadForbidden, Why: "not\tallowed"}}
	got := strings.Join(strings.Fields(checks.VersionsOf(f).Text()), " ")
	want := "Client: v1.1.0 Controller: registry.example.com/azuredisk:0.1.0 " +
		"Node plug-in: v1.0.0 (nodes: 1) Node plug-in: v1.1.0 (nodes: 2) Kubernetes: v1.37.2 " +
		"Not read: leases.coordination.k8s.io: not allowed"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
