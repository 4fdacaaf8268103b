package lostnode_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

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
		"a kind that is not known":   {corev1.VolumeSource{}, false},
	} {
		v := lostnode.PodVolumeOf(&corev1.Pod{}, corev1.Volume{Name: "share", VolumeSource: c.source}, nil, nil, "")
		if v.ReadOnly != c.want || v.Volume != "" || v.Name != "volume share" {
			t.Errorf("%s: got %+v, want read-only: %t", name, v, c.want)
		}
	}
}
