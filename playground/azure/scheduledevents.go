package azure

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/poll"
)

// ScheduledEvent is an event of maintenance that Azure announces to the VMs, as the admin API shows
// it.
type ScheduledEvent struct {
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	NotBefore time.Time `json:"notBefore"`
}

// Started is the status of an event that has started.
const Started = "Started"

// Announce has Azure announce an event of that type to a VM, that long before it starts. The VM is
// told to expect an interruption of that length; a negative one is not known.
func (a Admin) Announce(ctx context.Context, kind, vm string, notice, length time.Duration) (ScheduledEvent, error) {
	var event ScheduledEvent
	seconds := -1
	if length >= 0 {
		seconds = int((length + time.Second - 1) / time.Second)
	}
	err := a.Call(ctx, http.MethodPost, "/admin/scheduled-events", map[string]any{
		"type":            kind,
		"vms":             []string{vm},
		"notice":          notice.String(),
		"durationSeconds": seconds,
	}, &event)
	return event, err
}

// ScheduledEvents lists the events of all VMs.
func (a Admin) ScheduledEvents(ctx context.Context) ([]ScheduledEvent, error) {
	var all []ScheduledEvent
	return all, a.Call(ctx, http.MethodGet, "/admin/scheduled-events", nil, &all)
}

// AwaitStart waits until the event has started: at its time, after it was postponed, or earlier
// because it was approved. It fails if the event is canceled.
func (a Admin) AwaitStart(ctx context.Context, id string, limit time.Duration) error {
	canceled := false
	err := poll.Until(ctx, limit, 20*time.Millisecond, "the event has started", func(ctx context.Context) error {
		all, err := a.ScheduledEvents(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(e ScheduledEvent) bool { return e.ID == id })
		if canceled = at < 0; canceled || all[at].Status == Started {
			return nil
		}
		return fmt.Errorf("it is %s, not before %s", all[at].Status, all[at].NotBefore)
	})
	if err == nil && canceled {
		return fmt.Errorf("the event %s was canceled", id)
	}
	return err
}

// EndEvent cancels an event that has not started, and ends one that has.
func (a Admin) EndEvent(ctx context.Context, id string) error {
	return a.Call(ctx, http.MethodDelete, "/admin/scheduled-events/"+url.PathEscape(id), nil, nil)
}
