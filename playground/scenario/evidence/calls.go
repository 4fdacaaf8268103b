package evidence

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const maxLogLine = 1 << 20

// Call is a CSI call that the driver served, as its log tells.
type Call struct {
	Start    time.Time
	Duration time.Duration
	Method   string
	Volume   string // the CSI volume handle
	Code     string
	Error    string
	// Component is the plug-in that served it, on Node.
	Component, Node string
}

// logLine is a line of the driver's log with logFormat json.
type logLine struct {
	Time     time.Time `json:"time"`
	Message  string    `json:"msg"`
	Method   string    `json:"method"`
	VolumeID string    `json:"volumeID"`
	Code     string    `json:"code"`
	Duration string    `json:"duration"`
	Error    string    `json:"error"`
}

// parseCall reads the call from a line of a log. It reports false for a line about
// anything else.
func parseCall(text []byte, component, node string) (Call, bool) {
	var line logLine
	if json.Unmarshal(text, &line) != nil || line.Method == "" || line.VolumeID == "" {
		return Call{}, false
	}
	// Only the line that ends a call has a duration.
	took, err := time.ParseDuration(line.Duration)
	if err != nil || line.Code == "" {
		return Call{}, false
	}
	return Call{
		Start:     line.Time.Add(-took),
		Duration:  took,
		Method:    line.Method,
		Volume:    line.VolumeID,
		Code:      line.Code,
		Error:     line.Error,
		Component: component,
		Node:      node,
	}, true
}

// parseCalls reads the calls from a log until that ends, and hands each over with its
// line. Lines of anything else are skipped.
func parseCalls(log io.Reader, component, node string, found func(line string, c Call)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		if c, ok := parseCall(lines.Bytes(), component, node); ok {
			found(lines.Text(), c)
		}
	}
	return lines.Err()
}

// Event draws the call in the lane of the controller or of the node.
func (c Call) Event(workload string) timeline.Event {
	lane := timeline.Controller
	if c.Component == observer.NodePlugin {
		lane = timeline.Node(c.Node)
	}
	return timeline.Event{
		At:       c.Start,
		Duration: c.Duration,
		Lane:     lane,
		Kind:     timeline.Call,
		Source:   "driver " + c.Component,
		Step:     strings.TrimSuffix(c.Method, "Volume") + " " + timeline.Round(c.Duration),
		Failed:   c.Code != "OK",
		Subject:  workload,
		Detail:   strings.TrimSpace(c.Code + " " + c.Error),
	}
}
