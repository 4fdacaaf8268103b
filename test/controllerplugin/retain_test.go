package controllerplugin

import (
	"errors"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func awaitForgotten(t *testing.T, p *controlplane.ControlPlane, volume string) {
	t.Helper()
	p.Eventually("the record is gone", func() string {
		if v := p.Volume(volume); v != nil {
			return "it is " + string(v.Status.State)
		}
		return ""
	})
}

func diskThere(t *testing.T, p *controlplane.ControlPlane, handle string) bool {
	t.Helper()
	_, err := p.Cloud.Disks().Get(t.Context(), handle)
	if err != nil && !errors.Is(err, provisioner.NotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestADeletedRecordTakesNoDiskWithIt(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	handle := p.Create("vol", replicated)
	must(t, p.Client.Delete(t.Context(), p.Volume("vol")))
	awaitForgotten(t, p, "vol")
	if !diskThere(t, p, handle) {
		t.Fatal("the disk was deleted")
	}
	// What CSI was asked for when the controller stopped, and a node then used, is not done after
	// all.
	handle = p.Create("half", replicated)
	p.AddNode("rt-c", "1", size)
	v := p.Volume("half")
	v.Spec.DeleteDisk = true
	must(t, p.Client.Update(t.Context(), v))
	must(t, p.Publish(t.Context(), handle, "rt-c"))
	p.Eventually("the deletion is cancelled", func() string {
		if p.Volume("half").Spec.DeleteDisk {
			return "not yet"
		}
		return ""
	})
}
