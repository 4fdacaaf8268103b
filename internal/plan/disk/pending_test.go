package disk_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// released is a volume that was released some time ago.
func released(ago time.Duration) func(*apiv1.AzVolume) {
	return func(v *apiv1.AzVolume) {
		objects.Owned("", 1, apiv1.OwnershipReleased)(v)
		v.Status.DiskID, v.Status.LastReleasedTime = "/disk", objects.Ago(ago)
	}
}

func TestHowLongAPublishWaitsForAChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   time.Duration
	}{
		"nothing is to be changed":   {objects.NewVolume(released(0)), 0},
		"other tags":                 {objects.NewVolume(released(0), asked(tagged)), 0},
		"a size of an unshared disk": {objects.NewVolume(released(0), asked(larger), notShared), 0},
		"it has just been released":  {objects.NewVolume(released(0), asked(larger)), disk.HoldsFor},
		"another tier":               {objects.NewVolume(released(0), asked(otherTier)), disk.HoldsFor},
		"it was released before": {objects.NewVolume(released(30*time.Second), asked(larger)),
			disk.HoldsFor - 30*time.Second},
		"it takes too long":                {objects.NewVolume(released(disk.HoldsFor), asked(larger)), 0},
		"by a clock of the future":         {objects.NewVolume(released(-time.Hour), asked(larger)), 0},
		"asked for long after the release": {objects.NewVolume(released(time.Hour), asked(larger)), 0},
		"asked for long after the release, and begun": {objects.NewVolume(released(time.Hour), asked(larger), since(time.Second)),
			disk.HoldsFor - time.Second},
		"begun, and takes too long":     {objects.NewVolume(released(time.Hour), asked(larger), since(disk.HoldsFor)), 0},
		"never used":                    {objects.NewVolume(asked(larger), func(v *apiv1.AzVolume) { v.Status.DiskID = "/disk" }), 0},
		"no disk yet":                   {objects.NewVolume(released(0), asked(larger), func(v *apiv1.AzVolume) { v.Status.DiskID = "" }), 0},
		"Azure failed":                  {objects.NewVolume(released(0), asked(larger), failedNow), 0},
		"Azure refused the size":        {objects.NewVolume(released(0), asked(larger), refusedSize), 0},
		"Azure refused the tier":        {objects.NewVolume(released(0), asked(otherTier), refusedParams), 0},
		"Azure refused an earlier size": {objects.NewVolume(released(0), asked(larger), refusedEarlier), disk.HoldsFor},
		"its node was lost":             {objects.NewVolume(released(0), asked(larger), lostAgo(time.Second)), 0},
		"its node was lost, and the change has begun since": {
			objects.NewVolume(released(0), asked(larger), lostAgo(time.Hour), since(time.Second)), disk.HoldsFor - time.Second},
		"it is paused": {objects.NewVolume(released(0), asked(larger), func(v *apiv1.AzVolume) {
			v.Annotations = map[string]string{apiv1.AnnotationPaused: apiv1.PausedTrue}
		}), 0},
	} {
		if got := disk.Holds(test.volume, objects.Now); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestWhatAzureHasRefusedBeforeDoesNotWaitAgain(t *testing.T) {
	t.Parallel()
	refusal := func(reason provisioner.Kind) *apiv1.Refusal {
		return &apiv1.Refusal{Generation: 1, CapacityBytes: 2 << 30, SKUName: "Premium_LRS", Tier: "P30",
			Error: apiv1.Error{Reason: string(reason), FailureTime: metav1.NewTime(objects.Now)}}
	}
	size := func(reason provisioner.Kind) func(*apiv1.AzVolume) {
		return func(v *apiv1.AzVolume) { v.Status.RefusedCapacity = refusal(reason) }
	}
	settings := func(v *apiv1.AzVolume) { v.Status.RefusedSettings = refusal(provisioner.Unsupported) }
	larger := asked(func(s *apiv1.AzVolumeSpec) { s.CapacityBytes = 2 << 30 })
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   bool
	}{
		"the same size": {objects.NewVolume(larger, size(provisioner.InvalidArgument)), true},
		"another size": {objects.NewVolume(asked(func(s *apiv1.AzVolumeSpec) { s.CapacityBytes = 3 << 30 }),
			size(provisioner.InvalidArgument)), false},
		"a size beyond a quota":        {objects.NewVolume(larger, size(provisioner.InsufficientCapacity)), false},
		"a size without permission":    {objects.NewVolume(larger, size(provisioner.Unauthorized)), false},
		"the same size, not shared":    {objects.NewVolume(larger, notShared, size(provisioner.InvalidArgument)), false},
		"a size that was never wanted": {objects.NewVolume(larger), false},
		"the same tier":                {objects.NewVolume(asked(otherTier), settings), true},
		"another SKU":                  {objects.NewVolume(asked(otherSKU), settings), false},
		"other tags":                   {objects.NewVolume(asked(tagged), settings), false},
	} {
		if got := disk.RefusedBefore(test.volume) != nil; got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestWhetherAChangeWaitsForTheNextRelease(t *testing.T) {
	t.Parallel()
	several := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	attached := func(role apiv1.Role) []*apiv1.AzVolumeAttachment {
		return []*apiv1.AzVolumeAttachment{objects.NewAttachment("a", role, 1, apiv1.AttachmentAttached)}
	}
	for name, test := range map[string]struct {
		volume      *apiv1.AzVolume
		attachments []*apiv1.AzVolumeAttachment
		want        bool
		again       time.Duration
	}{
		"a node has it":      {objects.NewVolume(asked(larger), objects.Owned("a", 1, apiv1.OwnershipHeld)), nil, true, 0},
		"a node releases it": {objects.NewVolume(asked(larger), objects.Owned("a", 1, apiv1.OwnershipReleasing)), nil, true, 0},
		"it is released":     {objects.NewVolume(asked(larger), released(0)), attached(apiv1.RoleReplica), false, 0},
		"other tags, and a node has it": {objects.NewVolume(asked(tagged), objects.Owned("a", 1, apiv1.OwnershipHeld)), nil,
			false, 0},
		"an unshared disk, and a node has it": {objects.NewVolume(asked(larger), notShared, objects.Owned("a", 1, apiv1.OwnershipHeld)), nil,
			false, 0},
		"one of several nodes has it":   {objects.NewVolume(asked(larger), several), attached(apiv1.RolePrimary), true, 0},
		"none of several nodes has it":  {objects.NewVolume(asked(larger), several), attached(apiv1.RoleReplica), false, 0},
		"its node was lost":             {objects.NewVolume(asked(larger), lostAgo(time.Minute)), nil, true, 4 * time.Minute},
		"its node was lost a while ago": {objects.NewVolume(asked(larger), lostAgo(5*time.Minute)), nil, false, 0},
		"its node was lost, and it began": {objects.NewVolume(asked(larger), lostAgo(time.Minute), since(time.Second)), nil,
			false, 0},
	} {
		waits, again := disk.Waits(test.volume, test.attachments, objects.Now)
		if waits != test.want || again != test.again {
			t.Errorf("%s: got %t, again after %s; want %t, %s", name, waits, again, test.want, test.again)
		}
	}
}

func TestHowLongADiskThatAzureIsChangingIsNotAttached(t *testing.T) {
	t.Parallel()
	changing := func(ago time.Duration) *apiv1.AzVolume {
		return objects.NewVolume(func(v *apiv1.AzVolume) {
			v.Status.State = apiv1.VolumeUpdating
			v.Status.Operation = &apiv1.Operation{StartTime: *objects.Ago(ago)}
		})
	}
	creating, unknown := changing(0), changing(0)
	creating.Status.State, unknown.Status.Operation = apiv1.VolumeCreating, nil
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   time.Duration
	}{
		"it has just begun":          {changing(0), disk.HoldsFor},
		"it lasts":                   {changing(time.Minute), disk.HoldsFor - time.Minute},
		"it is about to be too long": {changing(disk.HoldsFor - time.Millisecond), operation.MinWait},
		"it takes too long":          {changing(disk.HoldsFor), 0},
		"by a clock of the future":   {changing(-time.Second), 0},
		"it is being created":        {creating, 0},
		"it gathers what to change":  {unknown, 0},
	} {
		if got := disk.Changing(test.volume, objects.Now); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestWhichPodsLeaveForAChange(t *testing.T) {
	t.Parallel()
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: ptr.To(true)}}
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		leaves bool
		why    string
	}{
		"a pod of a StatefulSet": {func(*corev1.Pod) {}, true, ""},
		"a pod of an operator":   {owned("Cluster"), true, ""},
		"a pod of a DaemonSet":   {owned("DaemonSet"), false, "no controller would create it again on another node"},
		"a static pod":           {owned("Node"), false, "no controller would create it again on another node"},
		"a pod of its own": {func(p *corev1.Pod) { p.OwnerReferences = nil }, false,
			"no controller would create it again on another node"},
		"a pod that ends":            {func(p *corev1.Pod) { p.DeletionTimestamp = objects.Ago(0) }, false, ""},
		"a pod that has succeeded":   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false, ""},
		"a pod that has failed":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false, ""},
		"a pod that has no node":     {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false, ""},
		"a pod that waits on a node": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true, ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		owned("StatefulSet")(pod)
		test.change(pod)
		if leaves, why := disk.LeavesFor(pod); leaves != test.leaves || why != test.why {
			t.Errorf("%s: got %t, %q; want %t, %q", name, leaves, why, test.leaves, test.why)
		}
	}
}

func TestAChangeIsPendingOfThePresentGenerationAlone(t *testing.T) {
	t.Parallel()
	for reason, test := range map[string]struct {
		generation int64
		want       bool
	}{
		apiv1.ReasonDiskUpdatePending: {2, true}, apiv1.ReasonDiskUpdating: {2, false},
		"an earlier generation": {1, false}, "": {0, false},
	} {
		v := objects.NewVolume(func(v *apiv1.AzVolume) { v.Generation = 2 })
		if reason != "" {
			given := reason
			if test.generation == 1 {
				given = apiv1.ReasonDiskUpdatePending
			}
			v.Status.Conditions = []metav1.Condition{{Type: apiv1.VolumeConditionUpdated, Reason: given, Message: "it grows",
				ObservedGeneration: test.generation}}
		}
		if message, pending := disk.Pending(v); pending != test.want || pending && message != "it grows" {
			t.Errorf("%q of generation %d: got %q, %t; want %t", reason, test.generation, message, pending, test.want)
		}
	}
}
