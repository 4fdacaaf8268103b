package verify

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// question asks the platform what no document and no recording says. There is no expected answer: the
// report shows what was seen.
type question struct {
	name string
	asks string
	run  func(ctx context.Context, w *world) (seen string, err error)
}

// questions are about attachDetachDataDisks, for which no session is known, and about disks without a
// zone.
func questions() []question {
	return []question{
		{"ask-attach", "an attach by attachDetachDataDisks: headers, polls, what VM and disk show until its end",
			func(ctx context.Context, w *world) (string, error) {
				return w.followUpdate(ctx, w.attachBody("asked", nil))
			}},
		{"ask-detach", "a detach of that disk", func(ctx context.Context, w *world) (string, error) {
			return w.followUpdate(ctx, detachBody(w, "asked", false))
		}},
		{"ask-forced-detach", "a forced detach from a VM that runs", func(ctx context.Context, w *world) (string, error) {
			if err := attached("vm-2", "forced", nil, nil)(ctx, w); err != nil {
				return "", err
			}
			return w.followUpdate(ctx, detachBody(w, "forced", true))
		}},
		{"ask-concurrent-attach", "an attach while another one of the VM is in flight", duringAttach("first",
			func(ctx context.Context, w *world) (string, error) {
				if err := makeDisk("second", nil)(ctx, w); err != nil {
					return "", err
				}
				a, err := w.do(ctx, http.MethodPost, ofVM("vm-2", "attachDetachDataDisks")(w), w.attachBody("second", nil))
				return a.String(), err
			})},
		{"ask-premium-v2", "a Premium SSD v2 disk without a zone", func(ctx context.Context, w *world) (string, error) {
			a, err := w.do(ctx, http.MethodPut, ofDisk("v2")(w), w.spec(object{"/sku": object{"name": "PremiumV2_LRS"}}))
			return strings.TrimSpace(a.String() + " " + a.message), err
		}},
	}
}

func detachBody(w *world, disk string, force bool) object {
	entry := object{"diskId": w.disk(disk)}
	if force {
		entry["detachOption"] = "ForceDetach"
	}
	return object{"dataDisksToDetach": []object{entry}}
}

// followUpdate changes the disks of vm-2 by attachDetachDataDisks, and follows the operation to its
// end.
func (w *world) followUpdate(ctx context.Context, body object) (string, error) {
	if err := makeVM("vm-2")(ctx, w); err != nil {
		return "", err
	}
	entries, _ := body["dataDisksToAttach"].([]object)
	if len(entries) > 0 {
		if err := makeDisk("asked", nil)(ctx, w); err != nil {
			return "", err
		}
	}
	further, _ := body["dataDisksToDetach"].([]object)
	disk, _ := append(entries, further...)[0]["diskId"].(string)
	began := w.Clock.Now()
	a, err := w.send(ctx, http.MethodPost, ofVM("vm-2", "attachDetachDataDisks")(w), body)
	if err != nil {
		return "", err
	}
	seen := []string{a.String() + headersOf(a)}
	for ended := a.status >= http.StatusBadRequest; !ended; {
		state, err := w.send(ctx, http.MethodGet, strings.TrimPrefix(a.header.Get("Azure-AsyncOperation"), w.Endpoint), nil)
		if err != nil {
			return "", err
		}
		shown, err := w.showUpdate(ctx, disk)
		if err != nil {
			return "", err
		}
		status, _ := state.body["status"].(string)
		now := fmt.Sprintf("%s%s, %s", status, pollHeaders(state), shown)
		if ended = status != "InProgress" && status != ""; ended {
			_, output := state.body["properties"].(object)
			now += fmt.Sprintf(", document with output: %t", output)
		}
		if !strings.HasSuffix(seen[len(seen)-1], ": "+now) {
			seen = append(seen, fmt.Sprintf("after %s: %s", w.Clock.Since(began).Round(time.Second), now))
		}
		if err := w.pause(ctx); err != nil {
			return "", err
		}
	}
	return strings.Join(seen, "; "), nil
}

// headersOf are the headers of an answer that accepts an operation.
func headersOf(a answer) string {
	text := pollHeaders(a)
	for _, name := range []string{"Azure-AsyncOperation", "Location"} {
		if n := len(a.header.Get(name)); n > 0 {
			text += fmt.Sprintf(", %s of %d bytes", name, n)
		}
	}
	if left := a.header.Get("x-ms-ratelimit-remaining-resource"); left != "" {
		text += ", left: " + left
	}
	return text
}

func pollHeaders(a answer) string {
	if after := a.header.Get("Retry-After"); after != "" {
		return ", Retry-After " + after
	}
	return ""
}

// showUpdate is what vm-2 and a disk say of one another.
func (w *world) showUpdate(ctx context.Context, disk string) (string, error) {
	vm, err := w.send(ctx, http.MethodGet, ofVM("vm-2", "")(w), nil)
	if err != nil {
		return "", err
	}
	properties, _ := vm.body["properties"].(object)
	storage, _ := properties["storageProfile"].(object)
	list, _ := storage["dataDisks"].([]any)
	listed := "the disk is not listed"
	for _, item := range list {
		entry, _ := item.(object)
		managed, _ := entry["managedDisk"].(object)
		if id, _ := managed["id"].(string); strings.EqualFold(id, disk) {
			listed = fmt.Sprintf("the disk is listed with toBeDetached %v, detachOption %v", entry["toBeDetached"],
				entry["detachOption"])
		}
	}
	got, err := w.send(ctx, http.MethodGet, disk+"?api-version="+diskVersion, nil)
	shown, _ := got.body["properties"].(object)
	return fmt.Sprintf("VM %v, %s, disk %v, managed by a VM: %t", properties["provisioningState"], listed, shown["diskState"],
		got.body["managedBy"] != nil), err
}

// ask asks the questions, and writes what was seen.
func (w *world) ask(ctx context.Context, all []question, write func(format string, args ...any)) error {
	for _, q := range all {
		seen, err := q.run(ctx, w)
		if err != nil {
			return fmt.Errorf("question %s could not be asked: %w", q.name, err)
		}
		write("SEEN    %s (%s): %s\n", q.name, q.asks, seen)
	}
	return nil
}

// asked returns the questions of those names, all if there are none.
func asked(names []string) []question {
	return slices.DeleteFunc(questions(), func(q question) bool { return len(names) > 0 && !slices.Contains(names, q.name) })
}
