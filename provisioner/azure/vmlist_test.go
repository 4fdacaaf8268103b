package azure_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// listBed is a bed where Azure refuses attachDetachDataDisks.
func listBed(t *testing.T, disks int) *bed {
	t.Helper()
	b := newBed(t, disks, func(o *server.Options) { o.AttachDetach = "region" })
	b.assign(t, "driver", listRoles()...)
	b.updates = "vm.update"
	return b
}

// through is another client of the driver, whose requests for VMs pass a function.
func (b *bed) through(send func(*http.Request) (*http.Response, error)) *azure.Cloud {
	b.Helper()
	options := b.options(b.T)
	options.Transport = checked(b.T, send)
	return b.openWith(b.T, options)
}

// attachedBySuite attaches a disk as another client does, by the VM's list.
func (b *bed) attachedBySuite(disk string) {
	b.Helper()
	other := b.options(b.T)
	other.Credential = b.credentials(b.T, "suite", "secret")
	if err := b.outcome(b.openWith(b.T, other).Attachments().Attach(b.Context(),
		provisioner.AttachRequest{VMID: b.vm, DiskID: disk})); err != nil {
		b.Errorf("the other client: %v", err)
	}
}

// listed are the disks that the VM lists, by ID.
func (b *bed) listed() map[string]int32 {
	b.Helper()
	list, err := b.cloud.Attachments().List(b.Context(), b.vm)
	if err != nil {
		b.Fatal(err)
	}
	luns := map[string]int32{}
	for _, a := range list {
		luns[strings.ToLower(a.DiskID)] = a.LUN
	}
	return luns
}

func writes(r *http.Request) bool { return r.Method == http.MethodPatch || r.Method == http.MethodPut }

func TestAStaleListDropsNoDiskOfAnotherClient(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := listBed(t, 2)
		b.attachedBySuite(b.disks[0])
		meanwhile := sync.OnceFunc(func() { b.attachedBySuite(b.disks[1]) })
		cloud := b.through(func(r *http.Request) (*http.Response, error) {
			if writes(r) && strings.Contains(r.URL.Path, "/virtualMachines/") {
				meanwhile() // after the driver has read the list
			}
			return b.HTTP.Do(r)
		})
		if err := b.outcome(cloud.Attachments().Detach(t.Context(), b.vm, b.disks[0])); err != nil {
			t.Fatal(err)
		}
		got := b.listed()
		if _, listed := got[strings.ToLower(b.disks[1])]; !listed || len(got) != 1 {
			t.Errorf("the VM lists %v, want %s alone, which the other client has attached", got, b.disks[1])
		}
	})
}

func provisionerConflict(err error) bool { return provisioner.KindOf(err) == provisioner.Conflict }

func TestAVMWithoutAnETagIsNotChangedByItsList(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := listBed(t, 1)
		etag := regexp.MustCompile(`"etag":"[^}]*?",`)
		cloud := b.through(func(r *http.Request) (*http.Response, error) {
			if writes(r) && strings.Contains(r.URL.Path, "/virtualMachines/") {
				t.Errorf("%s of a VM without an ETag", r.Method)
			}
			return b.without(etag, r)
		})
		err := b.outcome(cloud.Attachments().Attach(t.Context(), provisioner.AttachRequest{VMID: b.vm, DiskID: b.disks[0]}))
		if provisioner.KindOf(err) != provisioner.FailedPrecondition || !strings.Contains(err.Error(), "no ETag") {
			t.Errorf("got %v, want FailedPrecondition for want of an ETag", err)
		}
	})
}

// without sends a request, and removes what matches from the answer.
func (s *simulator) without(what *regexp.Regexp, r *http.Request) (*http.Response, error) {
	resp, err := s.HTTP.Do(r)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(what.ReplaceAll(raw, nil)))
	return resp, err
}

func TestAListThatChangesNothingProvesNoDetach(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := listBed(t, 1)
		b.attachedBySuite(b.disks[0])
		cloud := b.through(func(r *http.Request) (*http.Response, error) {
			resp, err := b.HTTP.Do(r)
			if err == nil && writes(r) {
				resp.Header.Del("Azure-AsyncOperation") // as in the answer to a list that the VM has already
			}
			return resp, err
		})
		remove := b.fault(t, map[string]any{"stage": "operation", "operation": "vm.update", "delay": "1h", "times": 1})
		defer remove()
		if err := b.outcome(cloud.Attachments().Detach(t.Context(), b.vm, b.disks[0])); !provisionerConflict(err) {
			t.Errorf("got %v, want Conflict", err)
		}
	})
}

func TestTheWayToAttachIsChosenOnceForEachTypeOfVM(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := listBed(t, 2)
		registry := prometheus.NewRegistry()
		options := b.options(t)
		options.Metrics = registry
		cloud := b.openWith(t, options)
		var reported []string
		cloud.OnAttachByList(func(kind string, _ error) { reported = append(reported, kind) })
		for _, disk := range b.disks {
			if err := b.outcome(cloud.Attachments().Attach(t.Context(),
				provisioner.AttachRequest{VMID: b.vm, DiskID: disk})); err != nil {
				t.Fatal(err)
			}
		}
		calls, _ := b.requests(t, b.since)
		if n := vmUpdates(calls); n != 1 {
			t.Errorf("%d calls of attachDetachDataDisks, want 1: the first is refused", n)
		}
		if len(reported) != 1 || reported[0] != "Microsoft.Compute/virtualMachines" {
			t.Errorf("reported %q, want the type of the VM, once", reported)
		}
		want := "# HELP azuredisk_azure_attaches_by_vm_list 1 for a type of VM whose list of data disks is written, because attachDetachDataDisks is not enabled.\n" +
			"# TYPE azuredisk_azure_attaches_by_vm_list gauge\n" +
			"azuredisk_azure_attaches_by_vm_list{type=\"Microsoft.Compute/virtualMachines\"} 1\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
			"azuredisk_azure_attaches_by_vm_list"); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutTheRightToWriteVMsTheDriverSaysSo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBed(t, 1, func(o *server.Options) { o.AttachDetach = "subscription" })
		err := b.outcome(b.cloud.Attachments().Attach(t.Context(), provisioner.AttachRequest{VMID: b.vm, DiskID: b.disks[0]}))
		if provisioner.KindOf(err) != provisioner.Unauthorized {
			t.Fatalf("got %v, want Unauthorized", err)
		}
		for _, want := range []string{"virtualMachines/write", "attach detach data disks API", "docs/limitations.md#azure"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want the action that is missing and where to read of it: %s", err, want)
			}
		}
	})
}

func TestAnUpdateOfAListIsResumed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := listBed(t, 1)
		remove := b.fault(t, map[string]any{"stage": "operation", "operation": "vm.update", "delay": "500ms", "times": 1})
		defer remove()
		ctx, kill := context.WithCancel(t.Context())
		former, err := azure.New(ctx, b.options(t))
		if err != nil {
			t.Fatal(err)
		}
		op, err := former.Attachments().Attach(t.Context(), provisioner.AttachRequest{VMID: b.vm, DiskID: b.disks[0]})
		if err != nil {
			t.Fatal(err)
		}
		token := op.Token()
		kill()
		if err := b.outcome(b.cloud.Attachments().Resume(t.Context(), token)); err != nil {
			t.Fatal(err)
		}
		if _, listed := b.listed()[strings.ToLower(b.disks[0])]; !listed {
			t.Error("the resumed attach succeeded, and the VM does not list the disk")
		}
	})
}

// An update of a list takes the place of the operation in flight. Only a forced detach may do that.
func TestAListIsNotWrittenWhileTheVMIsBeingUpdated(t *testing.T) {
	for name, test := range map[string]struct {
		detach func(provisioner.Attachments, context.Context, string, string) (provisioner.Operation, error)
		writes bool
	}{
		"an ordinary detach": {detach: provisioner.Attachments.Detach},
		"a forced detach":    {detach: provisioner.Attachments.ForceDetach, writes: true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				b := listBed(t, 1)
				b.attachedBySuite(b.disks[0])
				wrote := false
				cloud := b.through(func(r *http.Request) (*http.Response, error) {
					if writes(r) && strings.Contains(r.URL.Path, "/virtualMachines/") {
						wrote = true
					}
					return b.updating(r)
				})
				err := b.outcome(test.detach(cloud.Attachments(), t.Context(), b.vm, b.disks[0]))
				if wrote != test.writes || provisionerConflict(err) == test.writes {
					t.Errorf("got %v, and a list was written: %t, want %t", err, wrote, test.writes)
				}
			})
		})
	}
}

// updating sends a request, and shows a VM in the answer as one that is being updated.
func (s *simulator) updating(r *http.Request) (*http.Response, error) {
	resp, err := s.HTTP.Do(r)
	if err != nil || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/virtualMachines/") {
		return resp, err
	}
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	raw = bytes.ReplaceAll(raw, []byte(`"provisioningState":"Succeeded"`), []byte(`"provisioningState":"Updating"`))
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return resp, err
}
