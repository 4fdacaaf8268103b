package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// AzureLog reads azuresim's record of calls from its admin API.
type AzureLog struct {
	URL    string
	Client *http.Client
}

// AzureCall is a call that azuresim answered.
type AzureCall struct {
	Time      time.Time `json:"time"`
	Millis    int64     `json:"millis"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	API       string    `json:"api"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	Status    int       `json:"status"`
	Code      string    `json:"code"`
	Operation string    `json:"operation"`
}

// Since returns the calls from that time on, in their order.
func (l *AzureLog) Since(ctx context.Context, from time.Time) ([]AzureCall, error) {
	query := url.Values{"since": {from.UTC().Format(time.RFC3339Nano)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"/admin/requests?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := l.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask azuresim for its record of calls: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask azuresim for its record of calls: %s", response.Status)
	}
	var answer struct {
		Records []AzureCall `json:"records"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read azuresim's record of calls: %w", err)
	}
	return answer.Records, nil
}

// AwaitPower blocks until azuresim tells that the VM has come to that state of power,
// and returns the time that it tells. listening is called when no change can be missed
// any more.
func (l *AzureLog) AwaitPower(ctx context.Context, vm, state string, listening func()) (time.Time, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"/admin/events", nil)
	if err != nil {
		return time.Time{}, err
	}
	// The stream has no end: only the context bounds it.
	response, err := (&http.Client{Transport: l.Client.Transport}).Do(request)
	if err != nil {
		return time.Time{}, fmt.Errorf("listen to azuresim: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	listening()
	for decoder := json.NewDecoder(response.Body); ; {
		var event struct {
			Time            time.Time
			VM, Kind, State string
		}
		if err := decoder.Decode(&event); err != nil {
			return time.Time{}, fmt.Errorf("wait until the VM %s is %s: %w", vm, state, err)
		}
		if event.Kind == "power" && event.State == state && strings.EqualFold(event.VM, vm) {
			return event.Time, nil
		}
	}
}

// IsWrite reports whether the call was meant to change something at Azure.
func (c AzureCall) IsWrite() bool { return c.Method != http.MethodGet && c.Method != http.MethodHead }

// ended is when the operation that the call started was last asked about, which is
// when the caller learned of its end; for other calls, when they were answered.
func (c AzureCall) ended(all []AzureCall) time.Time {
	end := c.Time.Add(time.Duration(c.Millis) * time.Millisecond)
	if c.Operation == "" {
		return end
	}
	for _, other := range all {
		if !other.IsWrite() && strings.Contains(other.Path, c.Operation) && other.Time.After(end) {
			end = other.Time
		}
	}
	return end
}

func (c AzureCall) Event(all []AzureCall) timeline.Event {
	what := c.API[strings.LastIndex(c.API, ".")+1:]
	took := c.ended(all).Sub(c.Time)
	return timeline.Event{
		At: c.Time, Duration: took, Lane: timeline.Azure, Kind: timeline.Operation, Source: "azuresim",
		Step: fmt.Sprintf("%s %s %s", what, c.Name, timeline.Round(took)), Failed: c.Status >= 400 || c.Status == 0,
		Subject: strings.ToLower(c.Name),
		Detail:  strings.TrimSpace(fmt.Sprintf("%s %s answered %d %s", c.Method, c.Path, c.Status, c.Code)),
	}
}

// ChangesDiskOrVM leaves out what no resource is changed by, such as the issue of a token.
func ChangesDiskOrVM(c AzureCall) bool {
	return strings.Contains(strings.ToLower(c.Path), "/providers/microsoft.compute/")
}
