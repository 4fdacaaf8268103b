package collect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/fencing"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/plan/placement"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/scheduler"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// fault is a cluster with one fault.
type fault struct {
	stage func() *stage
	want  string
	// says and next are parts of the sentence or of the quote, and of what to do.
	says, next string
}

func lost() nodehealth.Judgement {
	return nodehealth.Judgement{State: nodehealth.Lost, Evidence: "no heartbeat since 11:59:50; 3 probes in a row failed"}
}

func changed(s *stage, change ...func(*stage)) func() *stage {
	return func() *stage {
		for _, c := range change {
			c(s)
		}
		return s
	}
}

// problemOn lets the node that has the volume report a problem.
func problemOn(s *stage, reason string, change ...func(*stage)) func() *stage {
	return changed(s, append(change, func(s *stage) {
		disk.Usable(s.volume, []*apiv1.AzDriverNode{{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: apiv1.AzDriverNodeStatus{VolumeProblems: []apiv1.VolumeProblem{
				{VolumeName: s.volume.Name, Reason: reason, Message: "words of the node", StartTime: *objects.Ago(time.Minute)},
			}},
		}}, objects.Now, &s.volume.Status)
	})...)
}

func node1(s *stage) { s.subject = explain.Subject{Kind: explain.KindNode, Name: "b"} }

func claimAsked(s *stage) {
	s.subject = explain.Subject{Kind: explain.KindClaim, Namespace: shop, Name: "data"}
}

// decided lets the driver start the release of the volume from the lost node a.
func decided(s *stage) {
	o, _, _ := ownership.StartRelease(s.volume.Status.Primary, "a", apiv1.CauseNodeLost, objects.Now.Add(-5*time.Second))
	s.volume.Status.Primary = &o
	s.nodes["a"].judged(lost())
	s.nodes["a"].ready(corev1.ConditionUnknown, 5*time.Second)
}

// fenced lets the driver decide about the fence of node a.
func fenced(s *stage, job operation.Job) {
	in := s.attaching(s.attachments["a"], job)
	in.NodeLost = true
	s.step(in)
}

func created(kind provisioner.Kind, code string) func() *stage {
	return func() *stage {
		job := refused(operation.WorkCreateDisk, kind, code)
		return unprovisioned(&job)
	}
}

func attachRefused(kind provisioner.Kind, code string) func() *stage {
	return func() *stage {
		s := cold()
		s.step(s.attaching(s.attachments["b"], refused(operation.WorkAttach, kind, code)))
		return s
	}
}

func newSnapshot(name, class string, status map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": shop, "name": name},
		"spec": map[string]any{
			"volumeSnapshotClassName": class, "source": map[string]any{"persistentVolumeClaimName": "data"},
		},
		"status": status,
	}}
	o.SetGroupVersionKind(collect.SnapshotGroup.WithKind("VolumeSnapshot"))
	return o
}

func snapshot(class string, status map[string]any) func() *stage {
	return func() *stage {
		s := newStage()
		s.subject = explain.Subject{Kind: explain.KindSnapshot, Namespace: shop, Name: "daily"}
		o := newSnapshot("daily", class, status)
		k := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "azuredisk"},
			"driver": driverName}}
		k.SetGroupVersionKind(collect.SnapshotGroup.WithKind("VolumeSnapshotClass"))
		s.more = append(s.more, o, k)
		return s
	}
}

func faults() map[string]fault {
	all := map[string]fault{}
	for _, some := range []map[string]fault{claimFaults(), placementFaults(), holderFaults(), failoverFaults(), nodeFaults(),
		attachFaults(), mountFaults(), diskFaults(), snapshotFaults(), driverFaults(), noFaults()} {
		for name, f := range some {
			all[name] = f
		}
	}
	return all
}

func claimFaults() map[string]fault {
	pending := func(change ...func(*stage)) func() *stage { return changed(unprovisioned(nil), change...) }
	return map[string]fault{
		"a pod names a claim that does not exist": {changed(newStage(), func(s *stage) { s.claim, s.pv = nil, nil }),
			"ClaimNotFound", "no claim data in namespace shop", "create the claim"},
		"a claim without a class, and no default one": {pending(func(s *stage) { s.claim.Spec.StorageClassName = nil }),
			"ClaimWithoutClass", "names no StorageClass", "spec.storageClassName"},
		"a claim with a class that does not exist": {pending(func(s *stage) { s.class = nil }),
			"ClassNotFound", "no StorageClass azuredisk", "create the StorageClass"},
		"a claim that waits for its first pod": {pending(func(s *stage) {
			s.class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		}), "WaitForFirstConsumer", "when a pod", "nothing"},
		"a disk that is to be created": {func() *stage {
			return unprovisioned(&operation.Job{})
		}, "DiskCreating", "Azure creates the disk", "usually ends within 60 s"},
		"a disk that Azure is creating": {func() *stage {
			s := unprovisioned(&operation.Job{})
			s.volume.Status.Operation = &apiv1.Operation{StartTime: *objects.Ago(time.Second)}
			return s
		}, "DiskCreating", "Azure creates the disk", "expected to end by 12:00:59"},
		"a disk that is to be created, for longer than usual": {func() *stage {
			s := unprovisioned(&operation.Job{})
			s.volume.CreationTimestamp = *objects.Ago(2 * time.Minute)
			return s
		}, "DiskCreating", "Azure creates the disk", "has lasted since 11:58:00"},
		"a pod that is not placed before its disk is created": {func() *stage {
			s := unprovisioned(&operation.Job{})
			s.subject = explain.Subject{Kind: explain.KindPod, Namespace: shop, Name: "cart-0"}
			s.pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: "pod has unbound immediate PersistentVolumeClaims",
			}}
			return s
		}, "DiskCreating", "Azure creates the disk", "usually ends within"},
		"a copy that is not complete": {func() *stage {
			return unprovisioned(&operation.Job{Work: operation.WorkCreateDisk, Phase: operation.PhaseEnded, Ended: objects.Now,
				Truth: operation.Truth{Filling: true, Disk: &provisioner.Disk{CompletionPercent: 40}}})
		}, "DiskFilling", "40 %", "nothing"},
		"a quota that is used up": {created(provisioner.InsufficientCapacity, "QuotaExceeded"), "QuotaExceeded", "quota",
			"larger quota"},
		"a SKU that is not offered": {created(provisioner.InsufficientCapacity, "SkuNotAvailable"), "SKUNotAvailable",
			"does not offer", "another SKU"},
		"a zone without capacity": {created(provisioner.InsufficientCapacity, "ZonalAllocationFailed"),
			"NoCapacityAtAzure", "no capacity", "another zone"},
		"a permission that is missing": {created(provisioner.Unauthorized, "AuthorizationFailed"), "PermissionMissing",
			"lacks a permission", "role"},
		"a deny assignment": {created(provisioner.Unauthorized, "DenyAssignmentAuthorizationFailed"),
			"DenyAssignment", "deny assignment", "lockdown"},
		"a policy at Azure": {created(provisioner.InvalidArgument, "RequestDisallowedByPolicy"), "PolicyRefused",
			"policy", "follows the policy"},
		"credentials that are refused": {created(provisioner.Unauthorized, "ExpiredAuthenticationToken"), "Unauthenticated",
			"credentials", "renew"},
		"credentials that give no token": {created(provisioner.Unauthorized, ""), "Unauthenticated", "credentials", "renew"},
		"a disk of that name that is another one": {created(provisioner.AlreadyExists, ""), "ForeignDisk",
			"disk pvc-7f6b that was not created",
			"delete or rename"},
		"a claim that a finalizer of another program keeps": {changed(newStage(), claimAsked, func(s *stage) {
			s.claim.DeletionTimestamp, s.claim.Finalizers, s.pod = objects.Ago(time.Minute), []string{"backup.example.com/keep"},
				nil
		}), "FinalizerWaits", "backup.example.com/keep", "which program"},
		"a volume that is being deleted": {changed(newStage(), claimAsked, func(s *stage) {
			s.volume.DeletionTimestamp, s.volume.Spec.DeletionPolicy = objects.Ago(10*time.Second), apiv1.DeletionDelete
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			s.attachments, s.pod, s.pv.Status.Phase = nil, nil, corev1.VolumeReleased
			s.diskStep(operation.Job{})
		}), "DiskDeleting", "is being deleted, with its disk", "usually ends within 120 s"},
		"a parameter that is not allowed": {pending(func(s *stage) {
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "rpc error: code = InvalidArgument desc = skuName: Gold is unknown")
		}), "ProvisioningFailed", "skuName: Gold is unknown", "correct what the event names"},
		"a volume whose record the cluster refuses": {pending(func(s *stage) {
			azVolumes := schema.GroupResource{Resource: "azvolumes"}
			refusal := status.From(apierrors.NewForbidden(azVolumes, "v", errors.New("policy x")))
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "failed to provision volume: "+refusal.Error())
		}), "WriteRefused", "policy x", "allow the write"},
		"a claim that is deleted while a pod uses it": {changed(newStage(), claimAsked, func(s *stage) {
			s.claim.DeletionTimestamp, s.claim.Finalizers = objects.Ago(time.Minute), []string{"kubernetes.io/pvc-protection"}
			runs(s.pod)
		}), "ClaimInUse", "Pods that use it: cart-0", "delete the pods"},
		"a claim that is a source of a snapshot that never completes": {changed(newStage(), claimAsked, func(s *stage) {
			s.claim.DeletionTimestamp, s.claim.Finalizers = objects.Ago(time.Minute), []string{explain.FinalizerSnapshot}
			ready := newSnapshot("daily", "azuredisk", map[string]any{"readyToUse": true})
			s.pod, s.more = nil, append(s.more, newSnapshot("broken", "gone", nil), ready)
		}), "FinalizerWaits", "source of snapshots that are not complete: broken", "azuredisk why snapshot broken -n shop"},
		"a claim that was a source of a snapshot that never completed": {changed(newStage(), claimAsked, func(s *stage) {
			s.claim.DeletionTimestamp, s.claim.Finalizers = objects.Ago(time.Minute), []string{explain.FinalizerSnapshot}
			s.pod, s.more = nil, append(s.more, newSnapshot("daily", "azuredisk", map[string]any{"readyToUse": true}))
		}), "FinalizerWaits", "which snapshot-controller has set", "kubectl patch pvc data -n shop"},
		"a clone of a claim that does not exist": {pending(func(s *stage) {
			s.claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "gone"}
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "error getting PVC gone from api server")
		}), "DataSourceNotFound", "claim gone, which does not exist in namespace shop", "create the source"},
		"a restore of a snapshot that does not exist": {pending(func(s *stage) {
			s.claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(collect.SnapshotGroup.Group),
				Kind: "VolumeSnapshot", Name: "gone"}
		}), "DataSourceNotFound", "snapshot gone, which does not exist", "create the source"},
		"a clone of a claim that exists": {pending(func(s *stage) {
			source := s.claim.DeepCopy()
			source.Name = "source"
			s.more = append(s.more, source)
			s.claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		}), "DiskCreating", "is about to be created", "usually ends within"},
		"a claim with settings of a class that does not exist": {pending(func(s *stage) {
			s.claim.Spec.VolumeAttributesClassName = ptr.To("gold")
		}), "AttributesClassNotFound", "no VolumeAttributesClass gold", "create the VolumeAttributesClass"},
		"a request that csi-provisioner does not pass on": {pending(func(s *stage) {
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "error getting secret: not found")
		}), "ProvisioningFailed", "csi-provisioner does not ask the driver", "correct what the event names"},
		"a claim whose pod is placed again because Azure has no quota": {func() *stage {
			s := created(provisioner.InsufficientCapacity, "QuotaExceeded")()
			s.class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			return s
		}, "QuotaExceeded", "create disk", "larger quota"},
		"a pod that is placed again because its volume could not be created": {pending(func(s *stage) {
			s.subject = explain.Subject{Kind: explain.KindPod, Namespace: shop, Name: "cart-0"}
			s.class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "rpc error: code = ResourceExhausted desc = QuotaExceeded")
		}), "ProvisioningFailed", "QuotaExceeded", "the request is repeated"},
		"a claim whose creation a policy at Azure refuses": {pending(func(s *stage) {
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "rpc error: code = InvalidArgument desc = create disk: CreateDisk "+
				"/subscriptions/s/d: Azure answered 403 RequestDisallowedByPolicy: Resource was disallowed (correlation ID 1)")
		}), "PolicyRefused", "Azure refused to create the volume", "csi-provisioner repeats the request"},
		"a claim whose creation Azure refuses with a code that has no cause": {pending(func(s *stage) {
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "create disk: CreateDisk d: Azure answered 409 Odd: odd")
		}), "ProvisioningFailed", "Azure refused", "remove what Azure names"},
		"a claim whose volume could not be created long ago": {pending(func(s *stage) {
			s.class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "rpc error: code = ResourceExhausted desc = QuotaExceeded")
			s.more[len(s.more)-1].(*corev1.Event).LastTimestamp = *objects.Ago(time.Hour)
		}), "WaitForFirstConsumer", "when a pod", "nothing"},
		"an event of an earlier claim of the name": {pending(func(s *stage) {
			s.event(explain.KindClaim, "data", "ProvisioningFailed", "rpc error: code = InvalidArgument desc = skuName: Gold is unknown")
			s.more[0].(*corev1.Event).InvolvedObject.UID = "earlier"
		}), "DiskCreating", "is about to be created", "usually ends within"},
		"a PersistentVolume that is deleted while a claim is bound to it": {changed(newStage(), claimAsked, terminating, func(s *stage) {
			runs(s.pod)
		}), "PersistentVolumeTerminating", "Kubernetes keeps it until the claim is deleted. Then its disk is deleted too",
			"kubectl patch pv pv -p"},
		"a PersistentVolume that is deleted while a claim is bound to it, without its replica": {changed(newStage(), claimAsked,
			terminating, func(s *stage) {
				runs(s.pod)
				s.volume.Spec.MaxMountReplicaCount = 1
				missesReplica(s, "no node can take another replica")
			}), "ReplicasMissing", "no node can take another replica", "reasons that are named"},
		"a PersistentVolume with the policy Retain that is deleted while a claim is bound to it": {changed(newStage(), terminating,
			func(s *stage) {
				runs(s.pod)
				s.pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
				s.subject = explain.Subject{Kind: explain.KindVolume, Name: "pv"}
			}), "PersistentVolumeTerminating", "The disk stays at Azure then", "nothing"},
		"a pod that gets a volume whose PersistentVolume is deleted": {changed(newStage(), terminating), "Mounting",
			"about to mount", "usually ends within"},
		"with VolumeAttachments, a PersistentVolume that is deleted while a claim is bound to it": {changed(newStage(), claimAsked,
			terminating, attachRequired, func(s *stage) {
				runs(s.pod)
				s.volume.Spec.MaxMountReplicaCount = 1
				missesReplica(s, "no node can take another replica")
			}), "PersistentVolumeNotAttachable", "Pods that use it go on", "the guide delete-and-retain"},
		"with VolumeAttachments, a pod that waits for a volume whose PersistentVolume is deleted": {
			changed(heldBy(apiv1.OwnershipReleasing), terminating, attachRequired),
			"PersistentVolumeNotAttachable", "attaches it to no node", "the guide delete-and-retain"},
		"with VolumeAttachments, a claim whose pod waits for a volume whose PersistentVolume is deleted": {changed(newStage(), claimAsked,
			terminating, attachRequired, func(s *stage) {
				objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
				s.attached("b", apiv1.RoleReplica, 4)
			}), "PersistentVolumeNotAttachable", "The pod on node b waits", "the guide delete-and-retain"},
		"with VolumeAttachments, a pod without a node whose PersistentVolume is deleted": {changed(newStage(), terminating, attachRequired,
			func(s *stage) {
				objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
				delete(s.attachments, "b")
				s.pod.Spec.NodeName = ""
			}), "PersistentVolumeNotAttachable", "The pod needs the volume", "the guide delete-and-retain"},
		"with VolumeAttachments, a volume that was attached before its PersistentVolume was deleted": {changed(newStage(), terminating,
			attachRequired), "Mounting", "about to mount", "usually ends within"},
		"a PersistentVolume without its claim that a node uses": {changed(newStage(), func(s *stage) {
			s.claim, s.pv.Status.Phase = nil, corev1.VolumeReleased
			s.pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			s.subject = explain.Subject{Kind: explain.KindVolume, Name: "pv"}
		}), "VolumeReleasedInUse", "the disk is deleted when the pods end", "kubectl patch pv pv -p"},
		"a claim whose PersistentVolume was deleted": {changed(newStage(), claimAsked, func(s *stage) {
			s.claim.Status.Phase, s.pv = corev1.ClaimLost, nil
		}), "ClaimLost", "does not exist any more", "restore"},
	}
}

func placementFaults() map[string]fault {
	unplaced := func(change func(*stage)) func() *stage {
		return changed(newStage(), func(s *stage) {
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			delete(s.attachments, "b")
			s.pod = newPod("cart-0", "", "data")
			s.pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: "0/2 nodes are available: 2 Insufficient cpu.",
			}}
			change(s)
		})
	}
	return map[string]fault{
		"a disk in a zone without a node": {unplaced(func(s *stage) {
			for _, n := range s.nodes {
				n.node.Labels["topology.disk.csi.azure.com/zone"] = "eastus-2"
			}
		}), "WrongZone", "eastus-1", "add a node in the zone"},
		"a pod whose selector excludes the zone": {unplaced(func(s *stage) {
			s.pod.Spec.NodeSelector = map[string]string{"pool": "gpu"}
		}), "SelectorExcludesZone", "eastus-1", "selector"},
		"a pod that fits nowhere": {unplaced(func(*stage) {}), "Unschedulable", "Insufficient cpu", "scheduler"},
		"a pod for which no node has a slot, as kube-scheduler says": {unplaced(func(s *stage) {
			s.pod.Status.Conditions[0].Message = "0/2 nodes are available: 2 node(s) exceed max volume count."
		}), "NoNodeWithSlot", "exceed max volume count", "more data disks"},
		"a pod for which no node has a slot, as the extender says": {unplaced(func(s *stage) {
			data := []scheduler.Volume{{Name: "data"}}
			full := scheduler.Room("b", &apiv1.NodeCapacity{MaxDataDisks: 1}, []string{"other"}, data)
			s.pod.Status.Conditions[0].Message = "0/2 nodes are available: 2 " + full.Message
		}), "NoNodeWithSlot", "no room", "more data disks"},
		"a scheduler whose extender does not answer": {unplaced(func(s *stage) {
			s.pod.Status.Conditions[0].Reason = corev1.PodReasonSchedulerError
			s.pod.Status.Conditions[0].Message = "Post \"http://10.0.0.1:29706/filter\": connect: connection refused"
		}), "SchedulerError", "29706/filter", "azuredisk-scheduler"},
		"a pod that the scheduler has not looked at": {unplaced(func(s *stage) { s.pod.Status.Conditions = nil }),
			"Scheduling", "not looked", "nothing"},
		"a pod that was rejected on a full node": {changed(newStage(), func(s *stage) {
			s.pod.Status.Phase, s.pod.Status.Reason = corev1.PodFailed, "VolumeAttachmentLimitExceeded"
		}), "VolumeAttachmentLimitExceeded", "no free slot", "its controller"},
		"a volume that was published to a node of another zone": {changed(cold(), func(s *stage) {
			b := s.nodes["b"]
			b.node.Labels[corev1.LabelTopologyZone] = "eastus-2"
		}), "WrongZone", "node b is in zone eastus-2", "add a node"},
	}
}

func holderFaults() map[string]fault {
	endingOnA := func(s *stage) { s.more = append(s.more, ends(runs(newPod("cart-old", "a", "data")))) }
	return map[string]fault{
		"pods of another node keep the volume": {changed(heldBy(apiv1.OwnershipHeld), func(s *stage) {
			s.more = append(s.more, runs(newPod("cart-old", "a", "data")))
		}), "HeldByPods", "pod cart-old uses it", "delete or move those pods"},
		"the old pod has not ended": {changed(heldBy(apiv1.OwnershipHeld), endingOnA),
			"StillMounted", "until pod cart-old there has ended", "expected to end by 12:00:50"},
		"the old pod should have ended": {changed(heldBy(apiv1.OwnershipHeld), func(s *stage) {
			old := ends(runs(newPod("cart-old", "a", "data")))
			old.DeletionTimestamp = objects.Ago(time.Minute)
			s.more = append(s.more, old)
		}), "PodEndsLate", "should have been at 11:59:00", "fsfreeze --unfreeze"},
		"the old pod should have ended, and the node plug-in has stopped": {changed(heldBy(apiv1.OwnershipHeld), func(s *stage) {
			old := ends(runs(newPod("cart-old", "a", "data")))
			old.DeletionTimestamp = objects.Ago(time.Minute)
			s.more = append(s.more, old)
			s.nodes["a"].condition(apiv1.NodeConditionPluginReady, metav1.ConditionFalse, "Stopped", "")
		}), "Stopped", "node plug-in on node a is not ready", "spec.nodeName=a"},
		"the pod of a claim should have ended": {changed(newStage(), claimAsked, func(s *stage) {
			ends(runs(s.pod)).DeletionTimestamp = objects.Ago(time.Minute)
		}), "PodEndsLate", "About pod cart-0: ", "container runtime"},
		"the pod of a claim ends": {changed(newStage(), claimAsked, func(s *stage) { ends(runs(s.pod)) }), "Healthy",
			"in use on node b", "nothing"},
		"a pod that should have ended on a node whose plug-in does not report": {changed(newStage(), func(s *stage) {
			ends(runs(s.pod)).DeletionTimestamp = objects.Ago(time.Minute)
			s.nodes["b"].judged(nodehealth.Judgement{State: nodehealth.Suspect, Evidence: "the node answers probes"})
		}), "NodePluginDown", "which unmounts the volumes there", "spec.nodeName=b"},
		"the pod of a claim has ended, and the node plug-in that unmounts its volume has stopped": {changed(newStage(), claimAsked,
			func(s *stage) {
				ends(runs(s.pod)).DeletionTimestamp = objects.Ago(time.Minute)
				s.pod.Status.Phase = corev1.PodFailed
				s.nodes["b"].stages(s.volume.Name, 4)
				s.nodes["b"].driver.Status.StagedVolumes[0].Published = true
				s.nodes["b"].condition(apiv1.NodeConditionPluginReady, metav1.ConditionFalse, "Stopped", "")
			}), "Stopped", "About pod cart-0: ", "spec.nodeName=b"},
		"a pod that should have ended on a node whose plug-in has stopped": {changed(newStage(), func(s *stage) {
			ends(runs(s.pod)).DeletionTimestamp = objects.Ago(time.Minute)
			s.nodes["b"].condition(apiv1.NodeConditionPluginReady, metav1.ConditionFalse, "Stopped", "")
		}), "Stopped", "is not ready", "spec.nodeName=b"},
		"a pod that should have ended on a node whose plug-in starts": {changed(newStage(), func(s *stage) {
			ends(runs(s.pod)).DeletionTimestamp = objects.Ago(time.Minute)
			s.nodes["b"].condition(apiv1.NodeConditionPluginReady, metav1.ConditionFalse, "Starting", "")
		}), "PodEndsLate", "should have ended on node b", "container runtime"},
		"the old node unmounts": {changed(heldBy(apiv1.OwnershipReleasing)), "StillMounted", "about to unmount",
			"usually ends within 30 s"},
		"a process on the old node outlived its pod": {changed(heldBy(apiv1.OwnershipReleasing), func(s *stage) {
			s.nodes["a"].driver.Status.StagedVolumes[0].Published = true
		}), "ProcessLeftBehind", "On node a a process may still write", "restart node a"},
		"a process on the old node outlived its pod, and no other node takes the next pod": {
			changed(heldBy(apiv1.OwnershipHeld), func(s *stage) {
				s.pod = newPod("cart-0", "", "data")
				s.nodes["a"].driver.Status.StagedVolumes[0].Published = true
			}), "ProcessLeftBehind", "On node a a process may still write", "restart node a"},
		"the old node's kubelet is dead": {changed(heldBy(apiv1.OwnershipHeld), endingOnA, func(s *stage) {
			s.nodes["a"].ready(corev1.ConditionUnknown, time.Minute)
		}), "KubeletDown", "pod cart-old there does not end", "start the kubelet"},
		"the old node's kubelet is dead, and no pod is left": {changed(heldBy(apiv1.OwnershipReleasing), func(s *stage) {
			s.nodes["a"].ready(corev1.ConditionUnknown, 20*time.Second)
		}), "KubeletDown", "detaches the disk by force", "expected to end by"},
		"the old node's plug-in is down": {changed(heldBy(apiv1.OwnershipReleasing), func(s *stage) {
			s.nodes["a"].judged(nodehealth.Judgement{State: nodehealth.Suspect, Evidence: "the node answers probes"})
		}), "NodePluginDown", "does not report", "spec.nodeName=a"},
		"an unshared disk that is still attached to the old node": {changed(newStage(), func(s *stage) {
			s.volume.Spec.Disk.MaxShares = 1
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			delete(s.attachments, "b")
			a := objects.Proved(objects.Deleted(s.attached("a", apiv1.RolePrimary, 4)), apiv1.ProofUnstaged)
			s.step(s.attaching(a, operation.Job{}))
		}), "DiskDetaching", "detaches the disk from node a", "usually ends within"},
		"an unshared disk that is still attached to the old node, and is paused": {changed(newStage(), func(s *stage) {
			s.volume.Spec.Disk.MaxShares = 1
			s.volume.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			delete(s.attachments, "b")
			a := objects.Proved(objects.Deleted(s.attached("a", apiv1.RolePrimary, 4)), apiv1.ProofUnstaged)
			s.step(s.attaching(a, operation.Job{}))
		}), "VolumePaused", "is to be detached from the node", "kubectl annotate azv"},
		"an unshared disk that Azure refuses to detach": {changed(newStage(), func(s *stage) {
			s.volume.Spec.Disk.MaxShares = 1
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			delete(s.attachments, "b")
			a := objects.Proved(objects.Deleted(s.attached("a", apiv1.RolePrimary, 4)), apiv1.ProofUnstaged)
			s.step(s.attaching(a, operation.Job{}))
			s.step(s.attaching(a, refused(operation.WorkDetach, provisioner.FailedPrecondition, "OperationNotAllowed")))
		}), "DiskDetachFailed", "detach the disk from node a", "remove what Azure names"},
		"an unshared disk that Azure does not detach": {changed(newStage(), func(s *stage) {
			s.volume.Spec.Disk.MaxShares = 1
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			delete(s.attachments, "b")
			a := objects.Proved(objects.Deleted(s.attached("a", apiv1.RolePrimary, 4)), apiv1.ProofUnstaged)
			s.step(s.attaching(a, operation.Job{}))
			s.step(s.attaching(a, refused(operation.WorkDetach, provisioner.FailedPrecondition, "ScopeLocked")))
		}), "ScopeLocked", "detach the disk from node a", "remove the lock"},
	}
}

func failoverFaults() map[string]fault {
	optOut := map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
	guarded := lost()
	guarded.MassLoss = true
	_, guarded.HeldBack = nodehealth.MassGuard(3, 4, 20)
	return map[string]fault{
		"a lost node that is being fenced": {changed(heldBy(apiv1.OwnershipHeld), decided, func(s *stage) {
			fenced(s, operation.Job{})
		}), "VolumeFencing", "detaches the disk from it by force", "usually ends within"},
		"a lost node that cannot write any more": {changed(heldBy(apiv1.OwnershipHeld), decided, func(s *stage) {
			objects.Proved(s.attachments["a"], apiv1.ProofDetached).Status.Proof.ProvenTime = *objects.Ago(time.Second)
		}), "FailoverProven", "cannot write any more", "usually ends within"},
		"a fence that Azure refuses": {changed(heldBy(apiv1.OwnershipHeld), decided, func(s *stage) {
			fenced(s, operation.Job{})
			fenced(s, refused(operation.WorkFence, provisioner.Unauthorized, "AuthorizationFailed"))
		}), "PermissionMissing", "lost node a", "assign the role"},
		"so many lost nodes that the guard holds back": {func() *stage { return onLost(guarded) },
			"FencingHeldBack", "3 of 4 nodes", "repair the network"},
		"a pod that opted out": {changed(onLost(lost()), func(s *stage) { s.pod.Annotations = optOut }),
			"OptedOut", "pod shop/cart-0", "kubectl delete pod cart-0 -n shop --force"},
		"a claim that opted out": {changed(onLost(lost()), func(s *stage) { s.claim.Annotations = optOut }),
			"OptedOut", "claim shop/data", "--force"},
		"a pod without a controller": {changed(onLost(lost()), func(s *stage) { s.pod.OwnerReferences = nil }),
			"NoOwner", "no controller", "delete the pod by force"},
		"a pod of a DaemonSet": {changed(onLost(lost()), func(s *stage) { s.pod.OwnerReferences[0].Kind = "DaemonSet" }),
			"DaemonSet", "DaemonSet", "start the node"},
		"a pod that also writes to another driver's volume": {changed(onLost(lost()), func(s *stage) {
			s.pod.Spec.Volumes = append(s.pod.Spec.Volumes, corev1.Volume{Name: "share", VolumeSource: corev1.VolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"},
			}})
		}), "ForeignVolume", "volume share is writable", "make sure that the node is down"},
		"a pod with a claim that does not exist": {changed(onLost(lost()), func(s *stage) {
			s.more = append(s.more, runs(newPod("cart-1", "a", "data", "gone")))
			s.subject.Name = "cart-1"
			s.pod = nil
			s.subject = explain.Subject{Kind: explain.KindClaim, Namespace: shop, Name: "data"}
		}), "UnknownVolume", "claim shop/gone was not found", "make sure that the node is down"},
		"a pod that shares a volume with one that opted out": {changed(onLost(lost()), func(s *stage) {
			other := runs(newPod("backup", "a", "data"))
			other.Annotations = optOut
			s.more = append(s.more, other)
		}), "SharedVolume", "together with a pod", "release the other pod first"},
		"failover that is switched off": {changed(onLost(lost()), func(s *stage) {
			s.controller.Spec.Template.Spec.Containers[0].Args = []string{"--failover-enabled=false", "--attach-required=false"}
		}), "FailoverDisabled", "switched off", "start the node again"},
		"a node that was just lost": {func() *stage { return onLost(lost()) }, "NodeLost", "does not answer",
			"usually ends within"},
		"a VM that is stopped": {func() *stage {
			return onLost(nodehealth.Judgement{State: nodehealth.Down, Stopped: true,
				Evidence: "Azure says that the VM is Stopped"})
		}, "VMStopped", "may continue with its memory", "usually ends within"},
		"a VM that is deallocated": {func() *stage {
			return onLost(nodehealth.Judgement{State: nodehealth.Down, Evidence: "Azure says that the VM is Deallocated"})
		}, "VMDown", "VM of node a", "usually ends within"},
		"a node that is silent": {func() *stage {
			return onLost(nodehealth.Judgement{State: nodehealth.Suspect, Evidence: "no heartbeat; a probe failed"})
		}, "HeartbeatStale", "nothing confirms", "nothing"},
		"a VM that Azure pauses": {func() *stage {
			return onLost(nodehealth.Judgement{State: nodehealth.Suspect, Paused: true, Evidence: "expected back at 12:00:09"})
		}, "NodeMaintenance", "expected back at 12:00:09", "nothing"},
		"a write that an admission policy refuses": {changed(heldBy(apiv1.OwnershipHeld), decided, func(s *stage) {
			fenced(s, operation.Job{})
			s.event(explain.KindNode, "a", apiv1.ReasonWriteRefused, "the cluster refuses to delete pod shop/cart-old: policy")
		}), "WriteRefused", "policy", "allow the write"},
	}
}

func nodeFaults() map[string]fault {
	says := func(kind, reason, message string) func(*stage) {
		return func(s *stage) { s.nodes["b"].condition(kind, metav1.ConditionFalse, reason, message) }
	}
	ready := apiv1.NodeConditionPluginReady
	return map[string]fault{
		"a node without the plug-in": {changed(cold(), func(s *stage) { s.nodes["b"].driver = nil }),
			"NodeUnknown", "has not reported from node b", "spec.nodeName=b"},
		"a registration that the kubelet refuses": {changed(cold(), says(ready, "RegistrationFailed",
			"another plug-in has the name")),
			"RegistrationFailed", "another plug-in", "do what the message says"},
		"a plug-in that is not in the CSINode": {changed(cold(), func(s *stage) { s.nodes["b"].csi.Spec.Drivers = nil }),
			"NotInCSINode", "does not list the driver", "nothing"},
		"a plug-in that starts":  {changed(cold(), says(ready, "Starting", "")), "Starting", "not ready", "usually ends within"},
		"a plug-in that stopped": {changed(cold(), says(ready, "Stopped", "")), "Stopped", "not ready", "spec.nodeName=b"},
		"two nodes that name one VM": {changed(newStage(), node1, says(apiv1.NodeConditionVMKnown, "VMNamedTwice", "a and b both name it")),
			"VMNamedTwice", "a and b both name it", "delete the Node"},
		"a providerID that names another VM": {changed(newStage(), node1,
			says(apiv1.NodeConditionVMKnown, "VMContradictsProviderID", "names x")), "VMContradictsProviderID", "names x",
			"delete the Node"},
		"maintenance that is announced": {changed(newStage(), node1,
			says(apiv1.NodeConditionUndisturbed, "MaintenanceAnnounced", "Reboot not before 12:30")), "MaintenanceAnnounced",
			"12:30", "nothing"},
		"a plug-in that names no VM": {changed(newStage(), node1, says(apiv1.NodeConditionVMKnown, "VMIDInvalid", "names \"x\"")),
			"VMIDInvalid", "names \"x\"", "metadata"},
		"maintenance before which pods move": {changed(newStage(), node1, says(apiv1.NodeConditionUndisturbed, "MaintenancePodsMove", "Redeploy")),
			"MaintenancePodsMove", "Redeploy", "nothing"},
		"a node that is not Ready": {changed(newStage(), node1, func(s *stage) {
			s.nodes["b"].ready(corev1.ConditionFalse, time.Minute)
		}), "NodeNotReady", "does not see node b as Ready", "repair"},
		"a pod that runs on a node that is not Ready": {changed(newStage(), func(s *stage) {
			runs(s.pod)
			s.nodes["b"].ready(corev1.ConditionUnknown, time.Minute)
		}), "NodeNotReady", "in use on node b. Node b has not been Ready since 11:59:00", "repair"},
		"a claim in use on a node that is not Ready": {changed(newStage(), claimAsked, func(s *stage) {
			runs(s.pod)
			s.nodes["b"].ready(corev1.ConditionUnknown, time.Minute)
		}), "NodeNotReady", "in use on node b. Node b has not been Ready since 11:59:00", "repair"},
		"a volume that several nodes use, one of them not Ready": {changed(newStage(), claimAsked, func(s *stage) {
			s.pod, s.volume.Spec.Access, s.volume.Status.Primary = nil, apiv1.AccessMultiNode, nil
			s.attached("a", apiv1.RolePrimary, 4)
			s.nodes["a"].ready(corev1.ConditionFalse, time.Minute)
		}), "NodeNotReady", "Node a has not been Ready", "repair"},
		"a claim in use on a node that is gone": {changed(newStage(), claimAsked, func(s *stage) {
			runs(s.pod)
			s.nodes["b"].node = nil
		}), "NodeGone", "Node b does not exist", "delete the pods"},
		"a node that does not exist": {changed(newStage(), func(s *stage) { s.nodes["b"] = &node{} }), "NodeGone", "node b",
			"delete the pods"},
	}
}

func attachFaults() map[string]fault {
	says := func(reason string) func(*stage) {
		return func(s *stage) {
			s.attachments["b"].Status.Conditions = []metav1.Condition{{Type: apiv1.AttachmentConditionAttached,
				Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: *objects.Ago(time.Second)}}
		}
	}
	return map[string]fault{
		"a paused volume on a node without the disk": {changed(cold(), func(s *stage) {
			s.volume.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
		}), "VolumePaused", "waits for an attach", "kubectl annotate azv"},
		"a disk that is being attached": {changed(cold(), func(s *stage) { s.step(s.attaching(s.attachments["b"], operation.Job{})) }),
			"DiskAttaching", "attaches the disk to node b", "usually ends within"},
		"an attach that Azure has accepted": {changed(cold(), func(s *stage) {
			a := s.step(s.attaching(s.attachments["b"], operation.Job{}))
			a.Status.Operation = &apiv1.Operation{StartTime: *objects.Ago(time.Second)}
		}), "DiskAttaching", "attaches the disk to node b", "expected to end by 12:00:59"},
		"an attach that waits for Azure's quota": {changed(cold(), func(s *stage) {
			in := s.attaching(s.attachments["b"], operation.Job{Work: operation.WorkAttach, Phase: operation.PhaseBegun})
			in.Waiting = provisioner.Waiting{
				For: provisioner.WaitingForQuota, Since: objects.Now.Add(-10 * time.Second),
				Until: objects.Now.Add(40 * time.Second),
			}
			s.step(in)
		}), "WaitingForAzureQuota", "until about 12:00:40", "nothing"},
		"a node without a free slot": {changed(cold(), func(s *stage) {
			in := s.attaching(s.attachments["b"], operation.Job{})
			in.Room = attaching.Slots(attaching.SlotInput{Attachment: in.Attachment, MaxShares: 2, MaxDataDisks: 1,
				OnNode: objects.Attachments(
					objects.NewAttachment("b", apiv1.RolePrimary, 1, apiv1.AttachmentAttached))})
			s.step(in)
		}), "NoDiskSlot", "all of its 1 data disks", "move a pod"},
		"a slot that a replica frees": {changed(cold(), func(s *stage) {
			in := s.attaching(s.attachments["b"], operation.Job{})
			in.Room = attaching.Slots(attaching.SlotInput{Attachment: in.Attachment, MaxShares: 2, MaxDataDisks: 1,
				OnNode: objects.Attachments(
					objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached))})
			s.step(in)
		}), "WaitingForDiskSlot", "a replica is removed", "nothing"},
		"a disk that is being changed before it is attached": {changed(cold(), func(s *stage) {
			s.volume.Status.State = apiv1.VolumeUpdating
			s.step(s.attaching(s.attachments["b"], operation.Job{}))
		}), "VolumeNotReady", "cannot be attached yet", "nothing"},
		"requests that Azure throttles": {attachRefused(provisioner.RateLimited, "TooManyRequests"),
			"Throttled", "slow down", "asks again at about 12:00:0"},
		"an Azure that fails": {attachRefused(provisioner.Unavailable, "InternalServerError"), "AzureUnavailable", "has failed",
			"asks again"},
		"an attach that Azure refuses": {attachRefused(provisioner.InvalidArgument, "InvalidParameter"),
			"DiskAttachFailed", "does not attach the disk to node b", "remove what Azure names"},
		"an attach that the driver refuses": {attachRefused(provisioner.FailedPrecondition, ""), "RefusedByDriver",
			"The driver does not attach the disk to node b", "do what the message says"},
		"a disk that another cluster's VM has": {changed(cold(), says(apiv1.ReasonUsedOutsideCluster)), "UsedOutsideCluster",
			"no node of this cluster has the disk", "detach it there"},
		"a disk that another cluster attached at the same time": {changed(cold(), says(apiv1.ReasonYieldsToAnotherCluster)),
			"DiskAttaching", "Another cluster attached the disk at the same time", "nothing"},
		"a disk whose VMs Azure has not named": {changed(cold(), says(apiv1.ReasonCustodyUnknown)), "DiskAttaching",
			"Azure has not answered which VMs have it", "nothing"},
		"a VM that Azure says is full": {attachRefused(provisioner.InsufficientCapacity, "OperationNotAllowed"), "NoDiskSlot",
			"node b", "move a pod"},
		"something that Azure does not find": {attachRefused(provisioner.NotFound, "ResourceNotFound"),
			"NotFoundAtAzure", "does not exist", "look at what Azure names"},
		"a disk that the VM size cannot have": {changed(cold(),
			func(s *stage) { s.nodes["b"].driver.Status.Capacity.LacksPremium = true }),
			"SKUNotAttachable", "Premium_LRS", "another SKU"},
		"a disk that a VM outside of the cluster has": {changed(cold(), func(s *stage) {
			delete(s.attachments, "b")
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			err := refusal.Errorf(apiv1.ReasonUsedOutsideCluster, "publish volume vol to node b: %s",
				ownership.OtherClusterUse("/vm/x", "vol"))
			s.event(explain.KindPod, "cart-0", "FailedAttachVolume", "volume pv cannot be attached to node b: "+err.Error())
		}), "UsedOutsideCluster", "VM /vm/x", "detach it there"},
		"a disk that was deleted at Azure": {changed(cold(), func(s *stage) {
			s.volume.Spec.Origin, s.volume.Status = apiv1.OriginAdopted, apiv1.AzVolumeStatus{}
			s.diskStep(refused(operation.WorkAdoptDisk, provisioner.NotFound, "ResourceNotFound"))
		}), "DiskGone", "does not exist at Azure any more", "restore the disk"},
		"a pod that was just placed": {changed(cold(), func(s *stage) {
			delete(s.attachments, "b")
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
		}), "Publishing", "about to attach", "usually ends within"},
	}
}

func mountFaults() map[string]fault {
	mount := func(err error) func(*stage) {
		return func(s *stage) {
			s.event(explain.KindPod, "cart-0", "FailedMount",
				fmt.Sprintf(`MountVolume.MountDevice failed for volume "pv" : rpc error: code = FailedPrecondition desc = %v`, err))
		}
	}
	reserved := provisioner.ReservationState{Type: provisioner.WriteExclusive, Holder: 0x42}
	_, otherProgram := fencing.AtStage(reserved, fencing.Owner{}, fencing.Call{})
	return map[string]fault{
		"a disk that is about to be mounted": {func() *stage { return newStage() }, "Mounting", "about to mount",
			"usually ends within"},
		"a disk with another filesystem": {changed(newStage(), mount(refusal.Errorf(apiv1.ReasonFilesystemMismatch,
			"refusing to mount device /dev/sdc: it holds xfs"))), "FilesystemMismatch", "it holds xfs", "what has written"},
		"a disk that another program has reserved": {changed(newStage(), mount(otherProgram)),
			"ReservedElsewhere", "another program has reserved it", "end what uses"},
		"an event of an earlier pod of the name": {changed(newStage(), mount(errors.New("exit status 32")), func(s *stage) {
			s.more[0].(*corev1.Event).InvolvedObject.UID = "earlier"
		}), "Mounting", "about to mount", "usually ends within"},
		"a ConfigMap that cannot be mounted": {changed(newStage(), func(s *stage) {
			s.nodes["b"].stages(s.volume.Name, 4)
			s.event(explain.KindPod, "cart-0", "FailedMount", `MountVolume.SetUp failed for volume "config" : configmap "x" not found`)
		}), "OtherVolumeNotMounted", `configmap "x" not found`, "do what the event says"},
		"a ConfigMap that cannot be mounted, before the disk is": {changed(newStage(), func(s *stage) {
			s.event(explain.KindPod, "cart-0", "FailedMount", `MountVolume.SetUp failed for volume "config" : configmap "x" not found`)
		}), "Mounting", "about to mount", "usually ends within"},
		"a mount that the kubelet has waited for": {changed(newStage(), func(s *stage) {
			s.event(explain.KindPod, "cart-0", "FailedMount", "Unable to attach or mount volumes: unmounted volumes=[data], timed out")
		}), "FailedMount", "timed out", "do what the event says"},
		"a mount that fails for another reason": {changed(newStage(), mount(fmt.Errorf("mount failed: exit status 32"))),
			"FailedMount", "exit status 32", "do what the event says"},
	}
}

func diskFaults() map[string]fault {
	inUse := func(s *stage) { runs(s.pod); claimAsked(s) }
	return map[string]fault{
		"a replica that no node can have": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.MaxMountReplicaCount = 1
			step := placement.Next(placement.Input{
				Now: objects.Now, Volume: s.volume, PersistentVolume: s.pv, Attachments: objects.Attachments(s.attachments["b"]),
				Nodes: []placement.NodeView{
					{Node: s.nodes["a"].node, Zone: "2", Location: "eastus", Health: nodehealth.Healthy, FreeSlots: -1},
					{Node: s.nodes["b"].node, Zone: "1", Location: "eastus", Health: nodehealth.Healthy, FreeSlots: -1},
				},
			})
			s.volume.Status.Replicas = &apiv1.ReplicaCount{Wanted: 1}
			s.volume.Status.Conditions = append(s.volume.Status.Conditions, metav1.Condition{
				Type: apiv1.VolumeConditionReplicasAttached, Status: metav1.ConditionFalse,
				Reason: apiv1.ReasonReplicasMissing, Message: step.Why,
			})
		}), "ReplicasMissing", "a: the disk cannot be attached in the node's zone", "reasons that are named"},
		"a replica that is being attached": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.MaxMountReplicaCount = 1
			s.step(s.attaching(s.attachment("a", apiv1.RoleReplica, 0), operation.Job{}))
			s.volume.Status.Conditions = append(s.volume.Status.Conditions, metav1.Condition{
				Type: apiv1.VolumeConditionReplicasAttached, Status: metav1.ConditionFalse, Reason: apiv1.ReasonReplicasMissing,
				LastTransitionTime: *objects.Ago(time.Second),
			})
		}), "ReplicaAttaching", "A replica is being attached to node a", "usually ends within 60 s"},
		"a replica that waits for Azure's quota": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.MaxMountReplicaCount = 1
			in := s.attaching(s.attachment("a", apiv1.RoleReplica, 0), operation.Job{Work: operation.WorkAttach,
				Phase: operation.PhaseBegun})
			in.Waiting = provisioner.Waiting{For: provisioner.WaitingForQuota, Since: objects.Now.Add(-10 * time.Second),
				Until: objects.Now.Add(40 * time.Second)}
			s.step(in)
			missesReplica(s, "")
		}), "ReplicaAttaching", "until about 12:00:40", "nothing"},
		"a growth that waits because a node has the shared disk": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.Disk.MaxShares, s.volume.Spec.CapacityBytes, s.volume.Generation = 2, 2<<30, 2
			begun := &apiv1.Operation{Type: string(operation.WorkUpdateDisk), StartTime: *objects.Ago(time.Second)}
			s.volume.Status.State, s.volume.Status.Operation = apiv1.VolumeUpdating, begun
			s.diskStep(operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseEnded, Begun: begun,
				Ended: objects.Now, Truth: operation.Truth{
					Disk: &provisioner.Disk{ID: "/disk", SizeBytes: 1 << 30, CompletionPercent: 100, MaxShares: 2, Zone: "1",
						DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"}},
					Update: &operation.Updated{Generation: 2},
				}})
		}), "DiskUpdatePending", "it grows to 2Gi between two pods", "apply-pending claim"},
		"a growth of an unshared disk that a node uses": {changed(newStage(), inUse, grows, func(s *stage) {
			s.volume.Spec.Disk.MaxShares = 1
		}), "DiskUpdating", "csi-resizer has not brought to the driver yet", "csi-resizer repeats"},
		"settings of a class that does not exist": {changed(newStage(), inUse, func(s *stage) {
			s.claim.Spec.VolumeAttributesClassName = ptr.To("gold")
		}), "AttributesClassNotFound", "no VolumeAttributesClass gold", "create the VolumeAttributesClass"},
		"settings that are refused": {changed(newStage(), inUse, func(s *stage) {
			s.claim.Spec.VolumeAttributesClassName = ptr.To("gold")
			gold := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: driverName}
			s.more = append(s.more, gold)
			s.event(explain.KindClaim, "data", "VolumeModifyFailed", "diskIOPSReadWrite: too many")
		}), "VolumeModifyFailed", "diskIOPSReadWrite: too many", "former VolumeAttributesClass"},
		"a replica that waits for the share of a lost node": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.Disk.MaxShares, s.volume.Spec.MaxMountReplicaCount = 2, 1
			objects.Deleted(s.attached("a", apiv1.RolePrimary, 3)).DeletionTimestamp = objects.Ago(5 * time.Second)
			missesReplica(s, "b: the disk has no free share")
		}), "ReplicaAttaching", "A replica follows when the disk is detached from node a", "usually ends within 60 s"},
		"a replica that waits for the share of a lost node, for longer than usual": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.Disk.MaxShares, s.volume.Spec.MaxMountReplicaCount = 2, 1
			objects.Deleted(s.attached("a", apiv1.RolePrimary, 3)).DeletionTimestamp = objects.Ago(5 * time.Minute)
			missesReplica(s, "b: the disk has no free share")
		}), "ReplicaAttaching", "A replica follows when the disk is detached from node a", "has lasted since 11:55:00"},
		"a growth that Azure has refused, and that is not in the spec any more": {changed(newStage(), claimAsked, unused, grows,
			refusedGrowth), "DiskUpdateRefused", "the subscription has no quota", "request a change that Azure allows"},
		"a growth that is being made": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.Disk.MaxShares, s.volume.Spec.CapacityBytes, s.volume.Generation = 1, 2<<30, 2
			s.volume.Status.UpdateWantedTime = &metav1.MicroTime{Time: objects.Now.Add(-time.Second)}
			s.diskStep(operation.Job{})
		}), "DiskUpdating", "is being changed", "expected to end by"},
		"a growth that Azure fails": {changed(newStage(), inUse, func(s *stage) {
			s.volume.Spec.Disk.MaxShares, s.volume.Spec.CapacityBytes, s.volume.Generation = 1, 2<<30, 2
			begun := &apiv1.Operation{Type: string(operation.WorkUpdateDisk), StartTime: *objects.Ago(time.Second)}
			s.volume.Status.State, s.volume.Status.Operation = apiv1.VolumeUpdating, begun
			job := refused(operation.WorkUpdateDisk, provisioner.Conflict, "")
			job.Begun = begun
			s.diskStep(job)
		}), "DiskUpdateFailed", "change disk vol", "remove what Azure names"},
		"a disk that Azure converts": {changed(newStage(), inUse, func(s *stage) {
			begun := &apiv1.Operation{Type: string(operation.WorkUpdateDisk), StartTime: *objects.Ago(time.Second)}
			s.volume.Status.State, s.volume.Status.Operation = apiv1.VolumeUpdating, begun
			s.diskStep(operation.Job{Work: operation.WorkUpdateDisk, Phase: operation.PhaseEnded, Begun: begun,
				Ended: objects.Now, Truth: operation.Truth{
					Disk: &provisioner.Disk{
						ID: "/disk", SizeBytes: 1 << 30, CompletionPercent: 10, MaxShares: 3, Zone: "1",
						DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
					},
					Update: &operation.Updated{Generation: 1, Applied: s.volume.Status.Applied},
				}})
		}), "DiskConverting", "converts the disk", "nothing"},
		"a deletion while a node uses the volume": {changed(newStage(), inUse, func(s *stage) {
			s.volume.DeletionTimestamp = objects.Ago(time.Minute)
			s.diskStep(operation.Job{})
		}), "VolumeDeletionHeld", "the driver keeps it, and the volume works as before", "leave the AzVolume as it is"},
		"writes that a device lost": {changed(newStage(), inUse, func(s *stage) {
			disk.LostWrites(s.volume, []*apiv1.AzDriverNode{{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Status: apiv1.AzDriverNodeStatus{LostWrites: []apiv1.LostWrites{
					{VolumeName: s.volume.Name, LossTime: *objects.Ago(time.Minute), Message: "input/output error"},
				}},
			}}, objects.Now, &s.volume.Status)
			s.pod = nil
			s.subject = explain.Subject{Kind: explain.KindClaim, Namespace: shop, Name: "data"}
		}), "DiskFlushFailed", "may be lost", "check the application's data"},
		"a filesystem that the kernel has stopped": {problemOn(newStage(), apiv1.ReasonFilesystemTakesNoWrites, inUse),
			"FilesystemTakesNoWrites", "takes no writes", "delete the pod"},
		"a filesystem that a backup has frozen": {problemOn(newStage(), apiv1.ReasonFilesystemFrozen, inUse, func(s *stage) {
			s.pod.DeletionTimestamp, s.pod.Finalizers = objects.Ago(time.Hour), []string{"test/keep"}
		}), "FilesystemFrozen", "is frozen", "fsfreeze --unfreeze"},
		"a filesystem that needs a person": {problemOn(newStage(), apiv1.ReasonFilesystemDamaged),
			"FilesystemDamaged", "is damaged", "repair-a-filesystem"},
		"a device that is held where the pod was": {problemOn(newStage(), apiv1.ReasonDeviceHeld, func(s *stage) {
			objects.Owned("a", 4, apiv1.OwnershipReleasing)(s.volume)
		}), "DeviceHeld", "on node a cannot be released", "losetup -d"},
		"a mount that is busy, asked of the claim": {problemOn(newStage(), apiv1.ReasonMountBusy, claimAsked),
			"MountBusy", "uses its mount", "unmount on that node"},
		"an unmount that fails": {problemOn(newStage(), apiv1.ReasonUnmountFailed), "UnmountFailed", "cannot be unmounted",
			"remove what the message names"},
		"a node whose own disk is full": {problemOn(newStage(), apiv1.ReasonNodeDiskFull), "NodeDiskFull", "own disk is full",
			"free space"},
		"a device that is gone": {problemOn(newStage(), apiv1.ReasonDeviceGone, inUse), "DeviceGone", "is gone",
			"delete the pod"},
		"a device that fails": {problemOn(newStage(), apiv1.ReasonReadFailed, inUse), "ReadFailed", "does not answer reads",
			"look at the disk and the VM"},
		"a disk that Azure does not delete": {changed(newStage(), claimAsked, func(s *stage) {
			s.volume.DeletionTimestamp, s.volume.Spec.DeletionPolicy = objects.Ago(time.Minute), apiv1.DeletionDelete
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			s.attachments, s.pod = map[string]*apiv1.AzVolumeAttachment{}, nil
			s.pv.Status.Phase = corev1.VolumeReleased
			s.volume.Status.State = apiv1.VolumeDeleting
			s.diskStep(refused(operation.WorkDeleteDisk, provisioner.FailedPrecondition, "DiskInUse"))
		}), "DiskDeletionFailed", "delete disk vol", "remove what Azure names"},
	}
}

func snapshotFaults() map[string]fault {
	return map[string]fault{
		"a snapshot without a class": {snapshot("gone", nil), "SnapshotClassMissing", "no VolumeSnapshotClass gone",
			"create the VolumeSnapshotClass"},
		"a snapshot of a claim that does not exist": {changed(snapshot("azuredisk", nil)(), func(s *stage) {
			s.claim,
				s.pod = nil, nil
		}),
			"SnapshotSourceMissing", "no claim data", "name of another one"},
		"a snapshot that failed": {snapshot("azuredisk", map[string]any{"error": map[string]any{"message": "QuotaExceeded"}}),
			"SnapshotFailed", "QuotaExceeded", "remove what the message names"},
		"a snapshot that is not complete": {snapshot("azuredisk", map[string]any{"readyToUse": false}), "SnapshotNotReady",
			"is being taken", "nothing"},
	}
}

func driverFaults() map[string]fault {
	expired := func(name string) func(*stage) {
		return func(s *stage) { s.leases[name].Spec.RenewTime = &metav1.MicroTime{Time: objects.Now.Add(-time.Minute)} }
	}
	waiting := func(s *stage) { s.step(s.attaching(s.attachments["b"], operation.Job{})) }
	return map[string]fault{
		"a driver that is not installed": {changed(cold(), func(s *stage) { s.csi = nil }), "CSIDriverMissing", "no CSIDriver",
			"install"},
		"a controller that does not lead": {changed(cold(), waiting, expired(explain.LeaseController)),
			"ControllerNotLeading", "was renewed last at 11:59:00", "kubectl get pods -n azure-disk-csi"},
		"a volume in use, and no controller": {changed(newStage(), func(s *stage) { runs(s.pod); claimAsked(s) },
			expired(explain.LeaseController)), "ControllerNotLeading",
			"By the records, which may be out of date: The volume of claim data is in use on node b", "kubectl azuredisk doctor"},
		"a node, and no controller": {changed(newStage(), node1, expired(explain.LeaseController)), "ControllerNotLeading",
			"which may be out of date: Node", "kubectl azuredisk doctor"},
		"a snapshot, and no controller": {func() *stage {
			s := snapshot("azuredisk", map[string]any{"readyToUse": true})()
			expired(explain.LeaseController)(s)
			return s
		}, "ControllerNotLeading", "which may be out of date", "kubectl azuredisk doctor"},
		"a controller of another mode": {changed(cold(), waiting, expired(explain.LeaseController), func(s *stage) {
			s.controller.Spec.Template.Spec.Containers[0].Args = []string{"--attach-required=true"}
		}), "AttachRequiredDiffers", "set to attachRequired true", "csiDriver.attachRequired"},
		"a csi-provisioner that does not run": {changed(unprovisioned(nil), func(s *stage) { delete(s.leases, "disk-csi-azure-com") }),
			"SidecarNotLeading", "csi-provisioner", "-c csi-provisioner"},
		"a csi-attacher that does not run": {changed(cold(), func(s *stage) {
			attachRequired(s)
			delete(s.attachments, "b")
			objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
			delete(s.leases, "external-attacher-leader-disk-csi-azure-com")
		}), "SidecarNotLeading", "csi-attacher", "-c csi-attacher"},
		"a csi-resizer that does not run": {changed(newStage(), claimAsked, unused, grows, func(s *stage) {
			delete(s.leases, "external-resizer-disk-csi-azure-com")
		}), "SidecarNotLeading", "csi-resizer", "-c csi-resizer"},
		"a csi-provisioner of a release with another name": {changed(unprovisioned(nil), renamed, func(s *stage) {
			delete(s.leases, "disk-csi-azure-com")
		}), "SidecarNotLeading", "csi-provisioner", "kubectl logs -n storage deploy/disks-controller -c csi-provisioner"},
	}
}

func noFaults() map[string]fault {
	return map[string]fault{
		"a pod that runs":    {changed(newStage(), func(s *stage) { runs(s.pod) }), "Healthy", "in use on node b", "nothing"},
		"a claim in use":     {changed(newStage(), func(s *stage) { runs(s.pod); claimAsked(s) }), "Healthy", "in use on node b", "nothing"},
		"a node":             {changed(newStage(), node1), "Healthy", "7 of 8 disk slots are free", "nothing"},
		"a snapshot":         {snapshot("azuredisk", map[string]any{"readyToUse": true}), "Healthy", "complete", "nothing"},
		"a claim not used":   {changed(newStage(), claimAsked, unused), "NotUsed", "no node uses it", "nothing"},
		"a claim that grows": {changed(newStage(), claimAsked, unused, grows), "DiskUpdating", "csi-resizer", "nothing"},
		"a claim whose growth was refused, and that does not ask for it any more": {changed(newStage(), claimAsked, unused,
			refusedGrowth), "NotUsed", "no node uses it", "nothing"},
		"a claim of a release with another name": {changed(newStage(), claimAsked, unused, grows, renamed), "DiskUpdating",
			"csi-resizer", "nothing"},
		"a pod that is being deleted": {changed(newStage(), func(s *stage) { ends(runs(s.pod)) }), "PodEnding", "is being deleted on node b",
			"expected to end by 12:00:50"},
		"a pod that should have ended": {changed(newStage(), func(s *stage) {
			ends(runs(s.pod)).DeletionTimestamp = new(metav1.NewTime(objects.Now.Add(-time.Minute)))
		}), "PodEndsLate", "should have ended on node b at 11:59:00", "fsfreeze --unfreeze"},
		"a pod that has ended and does not go": {changed(newStage(), func(s *stage) {
			ends(s.pod).DeletionTimestamp = new(metav1.NewTime(objects.Now.Add(-time.Minute)))
			s.pod.Status.Phase = corev1.PodFailed
		}), "PodEndsLate", "should have ended on node b at 11:59:00", "fsfreeze --unfreeze"},
		"a pod that another program keeps": {changed(newStage(), func(s *stage) {
			ends(s.pod).DeletionGracePeriodSeconds = ptr.To(int64(0))
			s.pod.Status.Phase = corev1.PodFailed
		}), "FinalizerWaits", "finalizers keep it: test/keep", "which program"},
		"a pod without a volume": {changed(newStage(), func(s *stage) { s.pod.Spec.Volumes = nil }), "NoVolumes", "no claim", "nothing"},
		"a pod with a scheduling gate": {changed(newStage(), func(s *stage) {
			s.pod.Spec.NodeName = ""
			s.pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
				Message: "gate hold",
			}}
		}), "SchedulingGated", "gate hold", "which program sets the gate"},
		"a pod that failed": {changed(newStage(), func(s *stage) { s.pod.Status.Phase = corev1.PodFailed }), "PodEnded", "has ended", "nothing"},
		"a pod whose image is missing": {changed(newStage(), func(s *stage) {
			s.nodes["b"].stages(s.volume.Name, 4)
			s.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "db", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"},
			}}}
		}), "VolumesReady", "no such image", "ImagePullBackOff"},
		"a claim of another driver": {changed(newStage(), func(s *stage) { s.pv.Spec.CSI.Driver = "file.csi.azure.com" }),
			"OtherDriver", "file.csi.azure.com", "ask that driver"},
	}
}

// terminating is a PersistentVolume that was deleted while its claim is bound to it.
func terminating(s *stage) {
	s.pv.DeletionTimestamp, s.pv.Finalizers = objects.Ago(time.Minute), []string{"kubernetes.io/pv-protection"}
	s.pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}

// attachRequired lets Kubernetes attach volumes, through VolumeAttachments.
func attachRequired(s *stage) { s.csi.Spec.AttachRequired = ptr.To(true) }

// missesReplica is a volume without its replica, for a reason.
func missesReplica(s *stage, why string) {
	s.volume.Status.Replicas = &apiv1.ReplicaCount{Wanted: 1}
	s.volume.Status.Conditions = append(s.volume.Status.Conditions, metav1.Condition{
		Type: apiv1.VolumeConditionReplicasAttached, Status: metav1.ConditionFalse, Reason: apiv1.ReasonReplicasMissing,
		Message: why,
	})
}

// unused is a volume that no node uses.
func unused(s *stage) {
	objects.Owned("", 4, apiv1.OwnershipReleased)(s.volume)
	s.pod, s.attachments = nil, nil
}

// grows is a claim that asks for more, which csi-resizer has not passed to the driver.
func grows(s *stage) {
	s.claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")}
}

// refusedGrowth is a volume with a refusal in its record, after the spec was reverted.
func refusedGrowth(s *stage) {
	s.volume.Status.RefusedCapacity = &apiv1.Refusal{Generation: 2,
		Error: apiv1.Error{Reason: string(provisioner.InsufficientCapacity), Message: "the subscription has no quota"}}
	s.volume.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionUpdated,
		Status: metav1.ConditionTrue, Reason: apiv1.ReasonDiskUpdated, LastTransitionTime: *objects.Ago(time.Minute)}}
}

// renamed is the driver in another namespace than its objects and with another name, beside another
// driver of the chart with the default name.
func renamed(s *stage) {
	other := s.controller.DeepCopy()
	other.Spec.Template.Spec.Containers[0].Args = append(other.Spec.Template.Spec.Containers[0].Args, "--driver-name=other")
	s.more = append(s.more, other)
	s.controller.Namespace, s.controller.Name = "storage", "disks-controller"
	for _, l := range s.leases {
		l.Namespace = "storage"
	}
}

// TestEachFaultGetsItsOwnFinding stages faults with the driver's own decisions, reads them as the
// command does, and compares the finding. No fault gets another one's.
func TestEachFaultGetsItsOwnFinding(t *testing.T) {
	t.Parallel()
	all := faults()
	if len(all) < 60 {
		t.Errorf("got %d faults, want at least 60", len(all))
	}
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := test.stage().explain(t)
			if got.ID != test.want {
				t.Fatalf("got %s, want %s:\n%s", got.ID, test.want, got.Text())
			}
			if len(got.Others) > 0 {
				t.Errorf("got other findings %+v, want none", got.Others)
			}
			if !strings.Contains(got.Sentence+" "+got.Quote, test.says) {
				t.Errorf("got sentence %q and quote %q, want %q in one of them", got.Sentence, got.Quote, test.says)
			}
			if !strings.Contains(got.Next, test.next) {
				t.Errorf("got %q to do, want one with %q", got.Next, test.next)
			}
		})
	}
}

// TestAVolumeOfAnotherKindHasNoLinks says nothing of the disk and the VM, which are not the reason.
func TestAVolumeOfAnotherKindHasNoLinks(t *testing.T) {
	t.Parallel()
	got := mountFaults()["a ConfigMap that cannot be mounted"].stage().explain(t)
	if len(got.Azure) > 0 {
		t.Errorf("got the links %v, want none", got.Azure)
	}
}

// notStaged are the causes that no fault of this test has, with the reason.
var notStaged = map[string]string{
	"GuardsFencedNode":   "it needs two lost nodes",
	"AnnotationInvalid":  "it is told beside the answer; see TestAPauseAndAnUnknownAnnotationAreToldBesideTheAnswer",
	"WaitingForVolume":   "with the rights of a namespace only; see TestEventsExplainWithoutOtherRights",
	"FailedAttachVolume": "the same",
	"FailoverHeldBack":   "the same",
	"NotReadable":        "the same",
}

func TestEveryCauseIsStaged(t *testing.T) {
	t.Parallel()
	staged := map[string]bool{}
	for _, f := range faults() {
		staged[f.want] = true
	}
	var missing []string
	for _, c := range cause.Table() {
		if c.Outcome != "" && !staged[c.ID] && notStaged[c.ID] == "" {
			missing = append(missing, c.ID)
		}
	}
	if len(missing) > 0 {
		t.Errorf("got causes without a fault: %v, want a fault for each", missing)
	}
}
