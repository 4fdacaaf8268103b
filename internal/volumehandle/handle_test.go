package volumehandle_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d",
		"/SUBSCRIPTIONS/s/resourcegroups/rg/Providers/microsoft.compute/DISKS/D_1",
		"", "/", "nonsense", "/subscriptions//resourceGroups/rg/providers/Microsoft.Compute/disks/d",
		"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/snapshots/s",
		"https://account.blob.core.windows.net/vhds/disk.vhd",
		"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d/",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := volumehandle.Parse(text)
		if err != nil {
			return
		}
		if !strings.EqualFold(h.String(), text) {
			t.Fatalf("%q became %q", text, h)
		}
		again, err := volumehandle.Parse(h.String())
		if err != nil || again != h || !again.Same(h) {
			t.Fatalf("%q read back as %+v: %v", text, again, err)
		}
		if faults := validation.IsDNS1123Subdomain(h.VolumeName()); len(faults) > 0 {
			t.Fatalf("%q names the AzVolume %q: %v", text, h.VolumeName(), faults)
		}
	})
}

// Such a name would be another path at Azure than the one that was compared here.
func TestAHandleHasOneSpelling(t *testing.T) {
	t.Parallel()
	const prefix = "/subscriptions/s/resourceGroups/"
	for _, text := range []string{
		prefix + "rg/providers/Microsoft.Compute/disks/..", prefix + "rg/providers/Microsoft.Compute/disks/.",
		prefix + "../providers/Microsoft.Compute/disks/d", prefix + "rg/providers/Microsoft.Compute/disks/d?x=y",
		prefix + "rg/providers/Microsoft.Compute/disks/d%2f", prefix + "rg/providers/Microsoft.Compute/disks/d#x",
		prefix + `rg/providers/Microsoft.Compute/disks/d\e`, prefix + "rg/providers/Microsoft.Compute/disks/d\x1b[2J",
		"/subscriptions/../resourceGroups/rg/providers/Microsoft.Compute/disks/d",
	} {
		if handle, err := volumehandle.Parse(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, handle)
		}
	}
	for _, text := range []string{
		prefix + "MC_rg(1).x_y/providers/Microsoft.Compute/disks/restore.2026-01_d", prefix + "rg/providers/Microsoft.Compute/disks/_d",
	} {
		if _, err := volumehandle.Parse(text); err != nil {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzParseSnapshot(f *testing.F) {
	for _, seed := range []string{
		"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/snapshots/s",
		"/SUBSCRIPTIONS/s/resourcegroups/rg/Providers/microsoft.compute/SNAPSHOTS/S_1",
		"", "snapshot-1", "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := volumehandle.ParseSnapshot(text)
		if err != nil {
			return
		}
		if again, err := volumehandle.ParseSnapshot(h.String()); err != nil || again != h ||
			!strings.EqualFold(h.String(), text) {
			t.Fatalf("%q read back as %+v: %v", text, again, err)
		}
	})
}

func TestWhatIsNoDiskIsNoHandle(t *testing.T) {
	for _, text := range []string{
		"nonsense", "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks",
		"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/snapshots/s",
		"/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d/",
		"https://account.blob.core.windows.net/vhds/disk.vhd",
		"/subscriptions//resourceGroups/rg/providers/Microsoft.Compute/disks/d",
	} {
		if h, err := volumehandle.Parse(text); err == nil || !strings.Contains(err.Error(), text) ||
			!strings.Contains(err.Error(), "/subscriptions/{s}/resourceGroups/") {
			t.Errorf("%q: got %+v, %v; want an error that names it and says how a handle looks", text, h, err)
		}
	}
}
