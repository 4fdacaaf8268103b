package evidence

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
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

func callsIn(log io.Reader) ([]Call, error) {
	var calls []Call
	err := parseCalls(log, observer.NodePlugin, "node-3", func(_ string, c Call) { calls = append(calls, c) })
	return calls, err
}

func TestCallsAreReadFromTheDriversLog(t *testing.T) {
	t.Parallel()
	log := &driverLog{}
	log.served(noon, "NodeStageVolume", handle, "Aborted", 250*time.Millisecond)
	log.WriteString("panic: not json\n")
	log.WriteString(`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"mounted","method":"NodeStageVolume","volumeID":"` +
		handle + `"}` + "\n")
	log.WriteString(`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"call served","method":"Probe","code":"OK","duration":"1ms"}` + "\n")
	calls, err := callsIn(&log.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	want := Call{
		Start:     noon.Add(-250 * time.Millisecond),
		Duration:  250 * time.Millisecond,
		Method:    "NodeStageVolume",
		Volume:    handle,
		Code:      "Aborted",
		Component: observer.NodePlugin,
		Node:      "node-3",
	}
	if len(calls) != 1 || calls[0] != want {
		t.Fatalf("got %+v, want only %+v", calls, want)
	}
	event := calls[0].Event("w")
	if event.Lane != timeline.Node("node-3") || !event.Failed || event.Step != "NodeStage 250 ms" || event.Subject != "w" {
		t.Errorf("got the event %+v, want a failed NodeStage of 250 ms in the lane of node-3", event)
	}
}

func TestALongLineDoesNotEndTheReading(t *testing.T) {
	t.Parallel()
	log := &driverLog{}
	log.WriteString(strings.Repeat("x", 200_000) + "\n")
	log.served(noon, "NodeStageVolume", handle, "OK", time.Second)
	calls, err := callsIn(&log.Buffer)
	if err != nil || len(calls) != 1 {
		t.Fatalf("%d calls, %v, want %d", len(calls), err, 1)
	}
}
