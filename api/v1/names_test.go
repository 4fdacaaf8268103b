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

func TestAVolumeIsNamedForItsDiskAndItsResourceID(t *testing.T) {
	for name, test := range map[string]struct{ subscription, group, disk, want string }{
		"a disk of the driver":                       {"s", "rg", "pvc-1", "pvc-1-"},
		"the same disk in capitals":                  {"S", "RG", "PVC-1", "pvc-1-"},
		"a name that Kubernetes cannot hold":         {"s", "rg", "By_User.1", "by-user-1-"},
		"a name that is longer than a label's value": {"s", "rg", strings.Repeat("a", 80), strings.Repeat("a", 52) + "-"},
	} {
		if got := apiv1.VolumeName(test.subscription, test.group, test.disk); len(got) != len(test.want)+10 ||
			!strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q and 10 digits", name, got, test.want)
		}
	}
}

func TestNamesAreLegalAndStayDifferent(t *testing.T) {
	part := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.-]{0,78}[A-Za-z0-9_]`)
	rapid.Check(t, func(t *rapid.T) {
		a := [3]string{part.Draw(t, "subscription"), part.Draw(t, "resource group"), part.Draw(t, "disk")}
		nameA := apiv1.VolumeName(a[0], a[1], a[2])
		if faults := validation.IsDNS1123Label(nameA); len(faults) > 0 {
			t.Fatalf("the name of the AzVolume of %q is %q: %v", a, nameA, faults)
		}
		b := a
		changed := rapid.IntRange(0, 2).Draw(t, "changed part")
		b[changed] = rapid.OneOf(part, rapid.Just(strings.ToUpper(a[changed]))).Draw(t, "changed")
		if nameB := apiv1.VolumeName(b[0], b[1], b[2]); (nameA == nameB) != strings.EqualFold(a[changed], b[changed]) {
			t.Fatalf("AzVolume of %q: %q, of %q: %q; want one name for one disk and two for two", a, nameA, b, nameB)
		}
		node := rapid.StringMatching(`[a-z0-9]{1,250}`).Draw(t, "node")
		if name := apiv1.AttachmentName(nameA, node); len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Fatalf("attachment %q", name)
		}
	})
}
