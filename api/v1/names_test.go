package v1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

func negotiated(t *testing.T) runtime.NegotiatedSerializer {
	t.Helper()
	return scheme.Codecs.WithoutConversion()
}

func TestNamesAreLegalAndStayDifferent(t *testing.T) {
	if got := apiv1.VolumeName("PVC-1.a"); got != "pvc-1.a" {
		t.Fatal(got)
	}
	rapid.Check(t, func(t *rapid.T) {
		disk := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.-]{0,78}[A-Za-z0-9_]`)
		a, b := disk.Draw(t, "a"), disk.Draw(t, "b")
		nameA, nameB := apiv1.VolumeName(a), apiv1.VolumeName(b)
		if len(validation.IsDNS1123Subdomain(nameA)) > 0 || len(nameA) > 80 {
			t.Fatalf("%q became %q", a, nameA)
		}
		if a != b && nameA == nameB && !strings.EqualFold(a, b) {
			t.Fatalf("%q and %q became %q", a, b, nameA)
		}
		node := rapid.StringMatching(`[a-z0-9]{1,250}`).Draw(t, "node")
		if name := apiv1.AttachmentName(nameA, node); len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Fatalf("attachment %q", name)
		}
	})
}
