package controllerplugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func TestRefusedModificationIsRevertedAndBlocksNoGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		p.AddNode("rm-a", "1", size)
		handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "cachingMode": "None"})
		p.StageOn(handle, "vol", "rm-a")
		// Azure does not convert a disk to that SKU while it is attached.
		class := map[string]string{"skuName": "StandardSSD_LRS", "tags": "a=b"}
		err := modify(t.Context(), p, handle, class)
		expectCode(t, err, codes.FailedPrecondition)
		v := asIs(t, p, "vol")
		if v.Spec.Disk.SKUName != "Premium_LRS" || v.Spec.Disk.Tags["a"] != "" || v.Status.RefusedSettings == nil ||
			!strings.Contains(v.Status.RefusedSettings.Message, "attached") {
			t.Fatalf("%+v %s", v.Spec.Disk, updated(v))
		}
		_, err = expand(t.Context(), p, handle, 20*gib)
		must(t, err)
		// Both at once: one is made, the other is refused.
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := expand(t.Context(), p, handle, 30*gib); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() { expectCode(t, modify(t.Context(), p, handle, class), codes.FailedPrecondition) })
		both.Wait()
		if d := diskAt(t, p, "vol"); d.SizeBytes != 30*gib || d.SKUName != "Premium_LRS" {
			t.Fatalf("%+v", d)
		}
		asIs(t, p, "vol")
		p.Unstage("vol", "rm-a")
		must(t, p.Unpublish(t.Context(), handle, "rm-a"))
		p.Eventually("detached", attachedTo(p, "vol"))
		must(t, modify(t.Context(), p, handle, class))
		if v := asIs(t, p, "vol"); v.Status.RefusedSettings != nil || v.Spec.Disk.SKUName != "StandardSSD_LRS" {
			t.Fatalf("%+v", v.Status)
		}
	})
}

func TestLaw5KilledDuringAChangeItResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.Create("vol", adjustable)
		release := p.Cloud.HoldAll(fake.DisksUpdate)
		expectWaiting(t, p, codes.Aborted, func(ctx context.Context) error {
			_, err := expand(ctx, p, handle, 20*gib)
			return err
		})
		p.Eventually("Azure works on it", func() string {
			if v := p.Volume("vol"); v.Status.State != apiv1.VolumeUpdating || v.Status.Operation == nil ||
				v.Status.Operation.ResumeToken == "" {
				return fmt.Sprintf("%+v", v.Status)
			}
			return ""
		})
		p.Stop()
		p.Start()
		p.Eventually("resumed", func() string {
			if p.Cloud.CallCount(fake.DisksResume) == 0 {
				return "not resumed"
			}
			return ""
		})
		more := make(chan error, 1)
		go func() { more <- modify(t.Context(), p, handle, map[string]string{"diskIOPSReadWrite": "6000"}) }()
		release()
		response, err := expand(t.Context(), p, handle, 20*gib)
		must(t, err)
		must(t, <-more)
		if response.GetCapacityBytes() != 20*gib || *diskAt(t, p, "vol").DiskIOPSReadWrite != 6000 {
			t.Fatal(response)
		}
		asIs(t, p, "vol")
	})
}

func TestLaw5RestartAfterAChangeWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := controlplane.NewInMemory(t, controlplane.Options{})
		handle := p.Create("vol", adjustable)
		must(t, modify(t.Context(), p, handle, map[string]string{"diskIOPSReadWrite": "5000"}))
		_, err := expand(t.Context(), p, handle, 20*gib)
		must(t, err)
		asIs(t, p, "vol")
		p.Stop()
		before, calls := p.Volume("vol").ResourceVersion, len(p.Cloud.Calls())
		p.Start()
		p.Create("other", single)
		if after := p.Volume("vol").ResourceVersion; after != before {
			t.Fatalf("written: %s, before %s", after, before)
		}
		for _, c := range p.Cloud.Calls()[calls:] {
			if strings.HasSuffix(c.ID, "disks/vol") {
				t.Fatalf("call to Azure: %+v", c)
			}
		}
	})
}
