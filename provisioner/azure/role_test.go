package azure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// That the role is enough is shown by each test against azuresim, the conformance suite above all:
// startSimulator assigns the driver nothing but the role. This shows that it holds nothing besides:
// without any one of its actions, a life of disks fails.
func TestTheRoleHoldsNoActionThatIsNotNeeded(t *testing.T) {
	t.Run("the whole role", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T) {
			s := startSimulator(t)
			if err := s.liveALife(t, "whole"); err != nil {
				t.Fatalf("with the whole role: %v", err)
			}
		})
	})
	for _, p := range azure.Permissions() {
		t.Run(p.Action, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				s := startSimulator(t)
				s.assign(t, "driver", driverRoles(p.Action)...)
				_, before := s.requests(t, 0)
				err := s.liveALife(t, "less")
				if err == nil {
					t.Errorf("nothing fails without it")
				}
				t.Log(err)
				s.refused(t, before)
			})
		})
	}
}

// A cluster with node resource group lockdown, such as AKS Automatic, refuses what the role grants.
// The error says what it is, because the role looks right.
func TestALockedNodeResourceGroupIsNamed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startSimulator(t)
		s.assign(t, "driver", append(driverRoles(""), auth.Role{
			Name:    "lockdown",
			Deny:    true,
			Actions: []string{"Microsoft.Compute/virtualMachines/attachDetachDataDisks/action"},
			Scopes:  []string{"/subscriptions/" + subscription + "/resourceGroups/" + group},
		})...)
		err := s.liveALife(t, "locked")
		// What is recorded is cut, so the cause is in front of Azure's own message.
		before, _, found := strings.Cut(fmt.Sprint(err), "The client")
		if provisioner.KindOf(err) != provisioner.Unauthorized || !found || !strings.Contains(before, "docs/limitations.md#aks") {
			t.Errorf("got %v, want what a locked group means, and then Azure's message", err)
		}
	})
}

// refused wants that azuresim refused a call of the driver since then for want of an action, and
// not that something else went wrong.
func (s *simulator) refused(t *testing.T, since uint64) {
	t.Helper()
	if s.refusals(t, since) == 0 {
		calls, _ := s.requests(t, since)
		t.Errorf("azuresim refused nothing: %v", calls)
	}
}

// refusals is how many calls of the driver azuresim has refused since then for want of an action.
func (s *simulator) refusals(t *testing.T, since uint64) int {
	t.Helper()
	calls, _ := s.requests(t, since)
	return count(calls, func(c seenCall) bool { return c.Code == "AuthorizationFailed" || c.Code == "LinkedAuthorizationFailed" })
}

// unlessRefused waits for what do returns. A poll that is refused says nothing about the operation,
// so the driver continues to ask for as long as its caller waits. When azuresim has refused a few
// calls, the caller stops waiting.
func (s *simulator) unlessRefused(t *testing.T, stop context.CancelFunc, do func() error) error {
	t.Helper()
	_, since := s.requests(t, 0)
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Millisecond):
			if s.refusals(t, since) >= 3 {
				stop()
			}
		}
	}
}

// liveALife does all that a driver does, on resources of its own, and stops at the first fault.
func (s *simulator) liveALife(t *testing.T, name string) error {
	t.Helper()
	vm, instance := s.newVM(t, "Standard_D4s_v3", ""), s.newScaleSetVM(t, "Standard_D4s_v3", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cloud, closeIt := s.open(t)
	defer closeIt()
	id := func(kind, text string) string {
		return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/%s/%s-%s", subscription, group, kind,
			name, text)
	}
	disk, clone, restored, snapshot := id("disks", "a"), id("disks", "clone"), id("disks", "restored"), id("snapshots", "s")
	spec := provisioner.DiskSpec{
		ID:           disk,
		Location:     "eastus",
		SizeBytes:    8 << 30,
		MaxShares:    1,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	}
	var faults []error
	step := func(what string, do func() (provisioner.Operation, error)) {
		if len(faults) > 0 {
			return
		}
		err := s.unlessRefused(t, cancel, func() error {
			op, err := do()
			if err != nil || op == nil {
				return err
			}
			return op.Wait(ctx)
		})
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
		}
	}
	from := func(target, source string) func() (provisioner.Operation, error) {
		return func() (provisioner.Operation, error) {
			copied := spec
			copied.ID, copied.SourceID = target, source
			return cloud.Disks().Create(ctx, copied)
		}
	}
	step("learn of SKUs", func() (provisioner.Operation, error) {
		_, err := cloud.SKUs().VM(ctx, "eastus", "Standard_D4s_v3")
		return nil, err
	})
	step("learn of the quota", func() (provisioner.Operation, error) {
		_, err := cloud.SKUs().Quota(ctx, subscription, "eastus", "Premium_LRS")
		return nil, err
	})
	step("create", func() (provisioner.Operation, error) { return cloud.Disks().Create(ctx, spec) })
	step("clone", from(clone, disk))
	step("snapshot", func() (provisioner.Operation, error) {
		return cloud.Snapshots().Create(ctx, provisioner.SnapshotSpec{
			ID:          snapshot,
			SourceID:    disk,
			Location:    "eastus",
			Incremental: true,
		})
	})
	step("restore", from(restored, snapshot))
	set, access := id("diskEncryptionSets", "set"), id("diskAccesses", "access")
	s.newLinked(t, set)
	s.newLinked(t, access)
	step("encrypt", s.special(ctx, cloud, id("disks", "encrypted"),
		func(s *provisioner.DiskSpec) { s.DiskEncryptionSetID = set }))
	step("make private", s.special(ctx, cloud, id("disks", "private"), func(s *provisioner.DiskSpec) {
		s.NetworkAccessPolicy, s.DiskAccessID = "AllowPrivate", access
	}))
	for _, machine := range []string{vm, instance} {
		step("attach", func() (provisioner.Operation, error) {
			return cloud.Attachments().Attach(ctx, provisioner.AttachRequest{
				VMID:        machine,
				DiskID:      clone,
				CachingMode: "None",
			})
		})
		step("detach", func() (provisioner.Operation, error) { return cloud.Attachments().Detach(ctx, machine, clone) })
	}
	step("delete the snapshot", func() (provisioner.Operation, error) { return cloud.Snapshots().Delete(ctx, snapshot) })
	step("delete", func() (provisioner.Operation, error) { return cloud.Disks().Delete(ctx, disk) })
	return errors.Join(faults...)
}

// special makes a disk that refers to something.
func (s *simulator) special(ctx context.Context, cloud *azure.Cloud, id string,
	change func(*provisioner.DiskSpec)) func() (provisioner.Operation, error) {
	return func() (provisioner.Operation, error) {
		spec := provisioner.DiskSpec{
			ID:           id,
			Location:     "eastus",
			SizeBytes:    4 << 30,
			MaxShares:    1,
			DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
		}
		change(&spec)
		return cloud.Disks().Create(ctx, spec)
	}
}
