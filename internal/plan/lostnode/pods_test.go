package lostnode_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/annotation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/lostnode"
)

func TestAVolumeThatAPodNamesItselfMayBeWrittenTo(t *testing.T) {
	t.Parallel()
	csi := func(readOnly *bool) corev1.VolumeSource {
		return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "file.csi.azure.com", ReadOnly: readOnly}}
	}
	for name, c := range map[string]struct {
		source corev1.VolumeSource
		want   bool
	}{
		"a CSI volume":               {csi(nil), false},
		"a CSI volume to write to":   {csi(new(false)), false},
		"a CSI volume to read from":  {csi(new(true)), true},
		"an NFS volume to read from": {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{ReadOnly: true}}, true},
		"an Azure Files volume to read from": {
			corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{ReadOnly: true}}, true},
		"a disk":                       {inlineDisk(nil), false},
		"a disk to write to":           {inlineDisk(new(false)), false},
		"a disk to read from":          {inlineDisk(new(true)), true},
		"an iSCSI volume to read from": {corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{ReadOnly: true}}, true},
		"a CephFS volume to read from": {corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{ReadOnly: true}}, true},
		"a kind that is not known":     {corev1.VolumeSource{}, false},
	} {
		v := lostnode.PodVolumeOf(&corev1.Pod{}, corev1.Volume{Name: "share", VolumeSource: c.source}, nil, nil, "")
		if v.ReadOnly != c.want || v.Volume != "" || v.Name != "volume share" {
			t.Errorf("%s: got %+v, want read-only: %t", name, v, c.want)
		}
	}
}

func inlineDisk(readOnly *bool) corev1.VolumeSource {
	return corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{ReadOnly: readOnly}}
}

func TestTheVolumeOfAClaim(t *testing.T) {
	t.Parallel()
	const name = "claim ns/data"
	optsOut := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled},
	}}
	csi := func(readOnly bool) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{ReadOnly: readOnly},
		}}}
	}
	for which, test := range map[string]struct {
		readOnly bool
		claim    *corev1.PersistentVolumeClaim
		pv       *corev1.PersistentVolume
		volume   string
		want     lostnode.PodVolume
	}{
		"not found": {want: lostnode.PodVolume{Name: name, Unknown: true}},
		"not bound, and opts out": {claim: optsOut, want: lostnode.PodVolume{Name: name, Unknown: true,
			OptOut: annotation.Failover.Switched(optsOut.Annotations)}},
		"of this driver": {claim: &corev1.PersistentVolumeClaim{}, pv: csi(false), volume: "vol",
			want: lostnode.PodVolume{Name: name, Volume: "vol"}},
		"that the pod reads": {readOnly: true, claim: &corev1.PersistentVolumeClaim{}, pv: csi(false), volume: "vol",
			want: lostnode.PodVolume{Name: name, Volume: "vol", ReadOnly: true}},
		"to read from": {claim: &corev1.PersistentVolumeClaim{}, pv: csi(true),
			want: lostnode.PodVolume{Name: name, ReadOnly: true}},
		"of no CSI driver": {claim: &corev1.PersistentVolumeClaim{}, pv: &corev1.PersistentVolume{},
			want: lostnode.PodVolume{Name: name}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
		v := corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: "data", ReadOnly: test.readOnly,
		}}}
		if got := lostnode.PodVolumeOf(pod, v, test.claim, test.pv, test.volume); got != test.want {
			t.Errorf("a claim %s: got %+v, want %+v", which, got, test.want)
		}
	}
}
