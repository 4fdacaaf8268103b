package publishing

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// ClaimElsewhere returns the claim, as namespace/name, that keeps a disk from the pods of a
// namespace that name the disk themselves, as azureDisk: every user who may create pods can name
// every disk. pvs are the PersistentVolumes of the disk, also released ones; without one the
// AzVolume, if there is one, names the claim. It is "" if no claim has the disk, or a claim of the
// namespace.
func ClaimElsewhere(namespace string, pvs []*corev1.PersistentVolume, v *apiv1.AzVolume) string {
	var claims []string
	for _, pv := range pvs {
		if claim := pv.Spec.ClaimRef; claim != nil {
			claims = append(claims, claim.Namespace+"/"+claim.Name)
		}
	}
	if len(pvs) == 0 && v != nil {
		claims = append(claims, v.Claim().String())
	}
	elsewhere := ""
	for _, claim := range claims {
		if of, _, _ := strings.Cut(claim, "/"); of == namespace {
			return ""
		}
		elsewhere = cmp.Or(elsewhere, claim)
	}
	return elsewhere
}
