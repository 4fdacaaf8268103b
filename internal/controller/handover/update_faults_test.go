package handover_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

func TestRefusedModificationIsRevertedAndBlocksNoGrowth(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	p.AddNode("rm-a", "1", size)
	handle := p.Create("vol", map[string]string{"skuName": "Premium_LRS", "cachingMode": "None"})
	stageOn(t, p, handle, "vol", "rm-a")
	// Azure does not convert a disk to that SKU while it is attached.
	class := map[string]string{"skuName": "StandardSSD_LRS", "tags": "a=b"}
	err := modify(t.Context(), p, handle, class)
	expectCode(t, err, codes.FailedPrecondition)
	v := asIs(t, p, "vol")
	if v.Spec.Disk.SKUName != "Premium_LRS" || v.Spec.Disk.Tags["a"] != "" || !strings.Contains(updated(v), "attached") || v.Status.RefusedSettings == nil {
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
}

func TestRefusedGrowthIsRevertedAndBlocksNoModification(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	handle := p.Create("vol", single)
	p.Cloud.FailNext(fake.DisksUpdate, 1, provisioner.Errorf(provisioner.InsufficientCapacity, "the quota is used up"))
	_, err := expand(t.Context(), p, handle, 20*gib)
	expectCode(t, err, codes.ResourceExhausted)
	if v := asIs(t, p, "vol"); v.Spec.CapacityBytes != 10*gib || v.Status.RefusedCapacity == nil {
		t.Fatalf("%+v", v)
	}
	must(t, modify(t.Context(), p, handle, map[string]string{"tier": "P10"}))
	// A smaller growth than the refused one is allowed.
	_, err = expand(t.Context(), p, handle, 15*gib)
	must(t, err)
	if d := diskAt(t, p, "vol"); d.SizeBytes != 15*gib || d.Tier != "P10" {
		t.Fatalf("%+v", d)
	}
}

func TestLaw5KilledBetweenRefusalAndRevert(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	handle := p.Create("vol", single)
	p.Stop()
	v := p.Volume("vol")
	v.Spec.Disk.SKUName, v.Spec.CapacityBytes = "StandardSSD_LRS", 20*gib
	must(t, p.Client.Update(t.Context(), v))
	v.Status.RefusedSettings = &apiv1.Refusal{Generation: v.Generation, Error: apiv1.Error{Kind: "InvalidArgument", Message: "no", Time: metav1.Now()}}
	v.Status.State = apiv1.VolumeCreated
	must(t, p.Client.Status().Update(t.Context(), v))
	p.Start()
	p.Eventually("grown and reverted", func() string {
		if v := p.Volume("vol"); v.Status.SizeBytes != 20*gib || v.Spec.Disk.SKUName != "Premium_LRS" {
			return fmt.Sprintf("%+v", v)
		}
		return ""
	})
	if d := diskAt(t, p, "vol"); d.SKUName != "Premium_LRS" {
		t.Fatalf("%+v", d)
	}
	must(t, modify(t.Context(), p, handle, map[string]string{"skuName": "StandardSSD_LRS"}))
}

func TestLaw5KilledDuringAChangeItResumes(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	handle := p.Create("vol", adjustable)
	release := p.Cloud.HoldAll(fake.DisksUpdate)
	_, err := expand(shortly(t, 3*time.Second), p, handle, 20*gib)
	expectCode(t, err, codes.Aborted)
	if v := p.Volume("vol"); v.Status.State != apiv1.VolumeUpdating || v.Status.Operation == nil || v.Status.Operation.ResumeToken == "" {
		t.Fatalf("%+v", v.Status)
	}
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
	if response.GetCapacityBytes() != 20*gib || *diskAt(t, p, "vol").IOPSReadWrite != 6000 {
		t.Fatal(response)
	}
	asIs(t, p, "vol")
}

func TestLaw5AChangeThatIsSetBackWhileItsProcessIsGoneIsUndone(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
	handle := p.Create("vol", replicated)
	release := p.Cloud.HoldAll(fake.DisksUpdate)
	expectCode(t, modify(shortly(t, 3*time.Second), p, handle, map[string]string{"skuName": "StandardSSD_LRS"}), codes.Aborted)
	p.Stop()
	p.Start()
	back := make(chan error, 1)
	go func() { back <- modify(t.Context(), p, handle, map[string]string{"skuName": "Premium_LRS"}) }()
	p.Eventually("it is asked for", func() string {
		if sku := p.Volume("vol").Spec.Disk.SKUName; sku != "Premium_LRS" {
			return sku
		}
		return ""
	})
	release()
	must(t, <-back)
	if d := diskAt(t, p, "vol"); d.SKUName != "Premium_LRS" {
		t.Errorf("the call was answered, and the disk is %s", d.SKUName)
	}
	asIs(t, p, "vol")
}

func TestLaw5RestartAfterAChangeWritesNothing(t *testing.T) {
	p := controlplane.New(t, controlplane.Options{})
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
}
