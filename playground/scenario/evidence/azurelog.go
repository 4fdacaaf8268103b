package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// AzureLog reads azuresim's record of calls from its admin API.
type AzureLog struct {
	azure.Admin
	// Node returns the node whose VM has that name, or the name itself.
	Node func(vm string) string
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

// AzureFault is a rule for azuresim's faults, as its admin API takes it: a field that is
// not set matches everything.
type AzureFault struct {
	Method     string `json:"method,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	For        string `json:"for"`
	RetryAfter string `json:"retryAfter,omitempty"`
}

// Since returns the calls from that time on, in their order.
func (l *AzureLog) Since(ctx context.Context, from time.Time) ([]AzureCall, error) {
	var answer struct {
		Records []AzureCall `json:"records"`
	}
	query := url.Values{"since": {from.UTC().Format(time.RFC3339Nano)}}
	err := l.Call(ctx, http.MethodGet, "/admin/requests?"+query.Encode(), nil, &answer)
	for i := range answer.Records {
		answer.Records[i].Name = l.Node(answer.Records[i].Name)
	}
	return answer.Records, err
}

// AwaitPower blocks until azuresim reports that the VM of the node has come to that state of power,
// and returns the time that it reports. listening is called when no change can be missed
// any more.
func (l *AzureLog) AwaitPower(ctx context.Context, node, state string, listening func()) (time.Time, error) {
	events, err := l.Open(ctx, http.MethodGet, "/admin/events", nil)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = events.Close() }()
	listening()
	for decoder := json.NewDecoder(events); ; {
		var event struct {
			Time            time.Time
			VM, Kind, State string
		}
		if err := decoder.Decode(&event); err != nil {
			return time.Time{}, fmt.Errorf("wait until the VM of %s is %s: %w", node, state, err)
		}
		if event.Kind == "power" && event.State == state && strings.EqualFold(l.Node(event.VM), node) {
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

// Event draws the call in Azure's lane, with the duration of its operation; all are the calls in
// which its polls are looked for.
func (c AzureCall) Event(all []AzureCall) timeline.Event {
	what := c.API[strings.LastIndex(c.API, ".")+1:]
	took := c.ended(all).Sub(c.Time)
	return timeline.Event{
		At:       c.Time,
		Duration: took,
		Lane:     timeline.Azure,
		Kind:     timeline.Operation,
		Source:   "azuresim",
		Step:     fmt.Sprintf("%s %s %s", what, c.Name, timeline.Round(took)),
		Failed:   c.Status >= 400 || c.Status == 0,
		Subject:  strings.ToLower(c.Name),
		Detail:   strings.TrimSpace(fmt.Sprintf("%s %s answered %d %s", c.Method, c.Path, c.Status, c.Code)),
	}
}

// ChangesDiskOrVM leaves out what no resource is changed by, such as the issue of a token.
func ChangesDiskOrVM(c AzureCall) bool {
	return strings.Contains(strings.ToLower(c.Path), "/providers/microsoft.compute/")
}

// Refused counts the calls that were answered with that status, and those with 5xx if
// it is 500.
func Refused(calls []AzureCall, status int) int {
	n := 0
	for _, c := range calls {
		if c.Status == status || status == http.StatusInternalServerError && c.Status > status {
			n++
		}
	}
	return n
}
