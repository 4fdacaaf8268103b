package cluster

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func TestPodsAreKeptAsFarAsPlacementLooksAtThem(t *testing.T) {
	t.Parallel()
	full := func(volumes ...corev1.Volume) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:        "p",
				Namespace:   "n",
				Labels:      map[string]string{"app": "a"},
				Annotations: map[string]string{"long": "text"},
			},
			Spec: corev1.PodSpec{
				NodeName:                  "node",
				NodeSelector:              map[string]string{"disk": "fast"},
				Tolerations:               []corev1.Toleration{{Key: "t"}},
				Volumes:                   volumes,
				Containers:                []corev1.Container{{Name: "c"}},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}},
				Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{},
					PodAntiAffinity: &corev1.PodAntiAffinity{}},
			},
		}
	}
	claim := corev1.Volume{
		Name:         "data",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
	}
	caching, kind := corev1.AzureDataDiskCachingReadOnly, corev1.AzureManagedDisk
	inline := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{
		DiskName:    "d",
		DataDiskURI: diskURI("d"),
		CachingMode: &caching,
		FSType:      ptr.To("xfs"),
		ReadOnly:    ptr.To(true),
		Kind:        &kind,
	}}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want corev1.PodSpec
	}{
		"one with a volume, with all that says where it may go": {full(claim),
			corev1.PodSpec{NodeName: "node", NodeSelector: map[string]string{"disk": "fast"},
				Tolerations: []corev1.Toleration{{Key: "t"}}, Volumes: []corev1.Volume{claim},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}},
				Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{},
					PodAntiAffinity: &corev1.PodAntiAffinity{}}}},
		"one that names a disk itself, with all by which that is published": {full(inline),
			corev1.PodSpec{NodeName: "node", Volumes: []corev1.Volume{inline},
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}},
		"one without, with what it wants of others": {full(),
			corev1.PodSpec{NodeName: "node", Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := trimPod(test.pod)
			if !reflect.DeepEqual(got.Spec, test.want) || got.Labels["app"] != "a" || len(got.Annotations) > 0 {
				t.Fatalf("kept %+v", got)
			}
		})
	}
}

func TestVolumesOfPodsThatAnotherNodeCouldWriteToAreKept(t *testing.T) {
	t.Parallel()
	csi := func(driver string) corev1.VolumeSource {
		return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: driver, ReadOnly: ptr.To(false), VolumeAttributes: map[string]string{"shareName": "orders"},
		}}
	}
	for name, test := range map[string]struct {
		source corev1.VolumeSource
		want   *corev1.VolumeSource
	}{
		"a file share that the pod names": {csi("file.csi.azure.com"), &corev1.VolumeSource{
			CSI: &corev1.CSIVolumeSource{Driver: "file.csi.azure.com", ReadOnly: ptr.To(false)}}},
		"a driver that is not known": {csi("csi.example.com"),
			&corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example.com", ReadOnly: ptr.To(false)}}},
		"a kind of volume that is newer than this driver": {corev1.VolumeSource{}, &corev1.VolumeSource{}},
		"a directory of another host": {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s"}},
			&corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s"}}},
		"secrets that a driver writes":      {csi("secrets-store.csi.k8s.io"), nil},
		"certificates that a driver writes": {csi("csi.cert-manager.io"), nil},
		"an empty directory":                {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, nil},
		"a directory of the node":           {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, nil},
		"a secret":                          {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, nil},
		"a ConfigMap":                       {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, nil},
		"fields of the pod":                 {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}, nil},
		"several of these":                  {corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}, nil},
		"an image":                          {corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}, nil},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: test.source}}}}
		var want []corev1.Volume
		if test.want != nil {
			want = []corev1.Volume{{Name: "v", VolumeSource: *test.want}}
		}
		if got := PodVolumes(pod); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func diskURI(name string) string {
	return "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/" + name
}

func TestTheCacheKeepsTheDriversOwnAnnotationsOfPods(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		apiv1.AnnotationFailover: "a", apiv1.AnnotationMaintenance: "b", apiv1.AnnotationSteered: "c",
		apiv1.AnnotationSteering: "e",
	}
	pod := &corev1.Pod{}
	pod.Annotations = maps.Clone(want)
	pod.Annotations["example.com/other"] = "d"
	if got := trimPod(pod).Annotations; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPodsAreFoundByTheDisksThatTheyNameThemselves(t *testing.T) {
	t.Parallel()
	names := func(uris ...string) *corev1.Pod {
		p := &corev1.Pod{}
		for _, uri := range uris {
			p.Spec.Volumes = append(p.Spec.Volumes,
				corev1.Volume{VolumeSource: corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: uri}}})
		}
		return p
	}
	for name, test := range map[string]struct {
		driver string
		pod    *corev1.Pod
		want   []string
	}{
		"each disk once, however it is spelled": {inTreeDriver, names(diskURI("one"), diskURI("Two"), diskURI("two")),
			[]string{apiv1.VolumeName("s", "rg", "one"), apiv1.VolumeName("s", "rg", "two")}},
		"a blob is none": {inTreeDriver, names("https://account.blob.core.windows.net/vhds/x.vhd"), nil},
		"nor is a volume of another kind": {inTreeDriver,
			&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "empty"}}}}, nil},
		"Kubernetes has no driver of another name serve them": {"disk.example.com", names(diskURI("one")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := PodDiskKeys(test.driver)(test.pod); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWhatLacksReplicasOrWaitsForASlotIsIndexed(t *testing.T) {
	t.Parallel()
	volume := func(reason string) *apiv1.AzVolume {
		return &apiv1.AzVolume{Status: apiv1.AzVolumeStatus{Conditions: []metav1.Condition{{
			Type:   apiv1.VolumeConditionReplicasAttached,
			Reason: reason,
		}}}}
	}
	if got := VolumeReplicasKeys(volume(apiv1.ReasonReplicasMissing)); !slices.Equal(got, []string{VolumeReplicasMissing}) {
		t.Errorf("a volume that lacks replicas has the keys %v", got)
	}
	for _, v := range []*apiv1.AzVolume{{}, volume(apiv1.ReasonReplicasAttached), volume(apiv1.ReasonReplicasNotWanted)} {
		if got := VolumeReplicasKeys(v); got != nil {
			t.Errorf("a volume that lacks no replicas has the keys %v: %+v", got, v.Status)
		}
	}
	waiting := &apiv1.AzVolumeAttachment{
		Spec: apiv1.AzVolumeAttachmentSpec{Role: apiv1.RolePrimary},
		Status: apiv1.AzVolumeAttachmentStatus{
			Conditions: []metav1.Condition{{
				Type:   apiv1.AttachmentConditionAttached,
				Status: metav1.ConditionFalse,
				Reason: apiv1.ReasonWaitingForDiskSlot,
			}},
		},
	}
	if got := attachmentSlotKeys(waiting); !slices.Equal(got, []string{AttachmentSlotAwaited}) {
		t.Errorf("a primary that waits for a slot has the keys %v", got)
	}
	attached := waiting.DeepCopy()
	attached.Status.State = apiv1.AttachmentAttached
	if got := attachmentSlotKeys(attached); got != nil {
		t.Errorf("an attached primary has the keys %v", got)
	}
}

func TestANodeKeepsItsReadinessAndWhatAzureAnnounces(t *testing.T) {
	t.Parallel()
	n := &corev1.Node{}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeReady, maintenance.NodeCondition} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionTrue, Message: "Freeze Scheduled: ", LastHeartbeatTime: metav1.Now(),
		})
	}
	n.Annotations = map[string]string{apiv1.AnnotationScaleDownDisabled: "a", "example.com/other": "b"}
	got := trimNode(n)
	if want := map[string]string{apiv1.AnnotationScaleDownDisabled: "a"}; !maps.Equal(got.Annotations, want) {
		t.Errorf("got annotations %v, want %v", got.Annotations, want)
	}
	if len(got.Status.Conditions) != 2 || !nodehealth.KubeletReady(got) || len(maintenance.FromNode(got)) != 1 {
		t.Errorf("got %+v, want the conditions of the kubelet and of the announced event", got.Status.Conditions)
	}
	for _, c := range got.Status.Conditions {
		if !c.LastHeartbeatTime.IsZero() {
			t.Errorf("got a time of the last heartbeat, which changes every few minutes: %+v", c)
		}
	}
}
