package scenario

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const handle = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-1"

// driverLog writes lines as the driver does: with slog's JSON handler, one line when
// a call has ended.
type driverLog struct{ bytes.Buffer }

func (l *driverLog) served(ended time.Time, method, volume, code string, took time.Duration) {
	handler := slog.NewJSONHandler(&l.Buffer, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Time(slog.TimeKey, ended)
		}
		return a
	}})
	slog.New(handler).Info("call served", "method", method, "volumeID", volume, "code", code, "duration", took.String())
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

func callsIn(log io.Reader) ([]call, error) {
	var calls []call
	err := parseCalls(log, nodePlugin, "node-3", func(_ string, c call) { calls = append(calls, c) })
	return calls, err
}

func TestCallsAreReadFromTheDriversLog(t *testing.T) {
	t.Parallel()
	log := &driverLog{}
	log.served(noon, "NodeStageVolume", handle, "Aborted", 250*time.Millisecond)
	log.WriteString("panic: not json\n")
	log.WriteString(`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"mounted","method":"NodeStageVolume","volumeID":"` + handle + `"}` + "\n")
	log.WriteString(`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"call served","method":"Probe","code":"OK","duration":"1ms"}` + "\n")
	calls, err := callsIn(&log.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	want := call{
		Start: noon.Add(-250 * time.Millisecond), Duration: 250 * time.Millisecond, Method: "NodeStageVolume",
		Volume: handle, Code: "Aborted", Component: nodePlugin, Node: "node-3",
	}
	if len(calls) != 1 || calls[0] != want {
		t.Fatalf("got %+v, want only %+v", calls, want)
	}
	event := calls[0].event("w")
	if event.Lane != timeline.Node("node-3") || !event.Failed || event.Step != "NodeStage 250 ms" || event.Subject != "w" {
		t.Errorf("drawn as %+v", event)
	}
}

func TestALongLineDoesNotEndTheReading(t *testing.T) {
	t.Parallel()
	log := &driverLog{}
	log.WriteString(strings.Repeat("x", 200_000) + "\n")
	log.served(noon, "NodeStageVolume", handle, "OK", time.Second)
	calls, err := callsIn(&log.Buffer)
	if err != nil || len(calls) != 1 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
}

func TestTheDriversShareCountsTheCallsOnThePathOfTheMove(t *testing.T) {
	t.Parallel()
	m := Move{Volume: volume{Handle: handle}, Requested: noon, Running: noon.Add(8 * time.Second)}
	during := noon.Add(4 * time.Second)
	tests := map[string]struct {
		calls []call
		want  time.Duration
	}{
		"unpublish, publish and stage count": {[]call{
			{Start: during, Duration: 1, Method: "ControllerUnpublishVolume", Volume: handle},
			{Start: during, Duration: 10, Method: "ControllerPublishVolume", Volume: handle},
			{Start: during, Duration: 100, Method: "NodeStageVolume", Volume: handle},
		}, 111},
		"failed attempts count": {[]call{
			{Start: during, Duration: 5, Method: "NodeStageVolume", Volume: handle, Code: "Aborted"},
			{Start: during, Duration: 5, Method: "NodeStageVolume", Volume: handle, Code: "OK"},
		}, 10},
		"the case of a resource ID does not matter":       {[]call{{Start: during, Duration: 1, Method: "NodeStageVolume", Volume: strings.ToUpper(handle)}}, 1},
		"unstaging is not on the path":                    {[]call{{Start: during, Duration: 1, Method: "NodeUnstageVolume", Volume: handle}}, 0},
		"another volume does not count":                   {[]call{{Start: during, Duration: 1, Method: "NodeStageVolume", Volume: handle + "2"}}, 0},
		"a call before the move does not count":           {[]call{{Start: noon.Add(-1), Duration: 1, Method: "NodeStageVolume", Volume: handle}}, 0},
		"a call after the pod has started does not count": {[]call{{Start: m.Running.Add(1), Duration: 1, Method: "NodeStageVolume", Volume: handle}}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := driverShare(test.calls, m); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
