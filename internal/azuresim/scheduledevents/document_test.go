package scheduledevents

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// event is an event that starts at noon and ends ten minutes later.
func event(id, kind string) Event {
	return Event{
		ID:         id,
		Type:       kind,
		Status:     Scheduled,
		VMs:        []string{"node-1"},
		NotBefore:  noon,
		StartedFor: latency.Duration(10 * time.Minute),
	}
}

// shape is what a document says of its events: their status by ID.
func shape(d Document) map[string]string {
	all := map[string]string{}
	for _, e := range d.Events {
		all[e.ID] = e.Status
	}
	return all
}

func TestEventsStartAndEndByThemselves(t *testing.T) {
	d := empty()
	d.add(event("a", Freeze))
	for name, test := range map[string]struct {
		at          time.Time
		incarnation int
		want        map[string]string
	}{
		"before its time":           {noon.Add(-time.Nanosecond), 2, map[string]string{"a": Scheduled}},
		"at its time":               {noon, 3, map[string]string{"a": Started}},
		"until it ends":             {noon.Add(10*time.Minute - 1), 3, map[string]string{"a": Started}},
		"when it has ended":         {noon.Add(10 * time.Minute), 4, map[string]string{}},
		"long after it, at a start": {noon.Add(24 * time.Hour), 4, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := d.At(test.at)
			if diff := cmp.Diff(test.want, shape(got)); diff != "" || got.Incarnation != test.incarnation {
				t.Errorf("incarnation %d, want %d; events (-want +got): %s", got.Incarnation, test.incarnation, diff)
			}
			if again := got.At(test.at); !cmp.Equal(got, again) {
				t.Errorf("the same time gives another document: %s", cmp.Diff(got, again))
			}
		})
	}
}

func TestEventsAreChanged(t *testing.T) {
	before := noon.Add(-time.Minute)
	for name, test := range map[string]struct {
		do          func(d *Document) error
		at          time.Time
		incarnation int
		want        map[string]string
		err         error
	}{
		"an approved event starts before its time": {func(d *Document) error { return d.approve("a", before) }, before, 5,
			map[string]string{"a": Started, "t1": Scheduled, "t2": Scheduled}, nil},
		"the second approval changes nothing": {
			func(d *Document) error { return errors.Join(d.approve("a", before), d.approve("a", before)) }, before, 5,
			map[string]string{"a": Started, "t1": Scheduled, "t2": Scheduled}, nil},
		"an approved Terminate waits for the others": {func(d *Document) error { return d.approve("t1", before) }, before, 4,
			map[string]string{"a": Scheduled, "t1": Scheduled, "t2": Scheduled}, nil},
		"all approved Terminates start together": {
			func(d *Document) error { return errors.Join(d.approve("t1", before), d.approve("t2", before)) }, before, 6,
			map[string]string{"a": Scheduled, "t1": Started, "t2": Started}, nil},
		"an unknown event is not approved": {func(d *Document) error { return d.approve("x", before) }, before, 4,
			map[string]string{"a": Scheduled, "t1": Scheduled, "t2": Scheduled}, ErrUnknown},
		"a canceled event is gone": {func(d *Document) error { d.remove("a"); return nil }, before, 5,
			map[string]string{"t1": Scheduled, "t2": Scheduled}, nil},
		"a postponed event starts later": {func(d *Document) error { return d.postpone("a", noon.Add(time.Minute)) },
			noon.Add(time.Minute - 1), 7, map[string]string{"a": Scheduled, "t1": Started, "t2": Started}, nil},
		"a Terminate is not postponed": {func(d *Document) error { return d.postpone("t1", noon.Add(time.Minute)) }, before, 4,
			map[string]string{"a": Scheduled, "t1": Scheduled, "t2": Scheduled}, ErrFixed},
		"a started event is not postponed": {func(d *Document) error { d.start("a", before); return d.postpone("a", noon) },
			before, 5, map[string]string{"a": Started, "t1": Scheduled, "t2": Scheduled}, ErrFixed},
	} {
		t.Run(name, func(t *testing.T) {
			d := empty()
			d.add(event("a", Freeze))
			d.add(event("t1", Terminate))
			d.add(event("t2", Terminate))
			if err := test.do(&d); !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			got := d.At(test.at)
			if diff := cmp.Diff(test.want, shape(got)); diff != "" || got.Incarnation != test.incarnation {
				t.Errorf("incarnation %d, want %d; events (-want +got): %s", got.Incarnation, test.incarnation, diff)
			}
		})
	}
}

func TestNoticesAndDefaults(t *testing.T) {
	now := noon.Add(100 * time.Millisecond)
	notice := func(d time.Duration) *latency.Duration { return (*latency.Duration)(&d) }
	for name, test := range map[string]struct {
		request   Request
		terminate time.Duration
		notBefore time.Time
		status    string
	}{
		"a freeze":            {Request{Type: Freeze}, 0, noon.Add(15*time.Minute + time.Second), Scheduled},
		"a reboot":            {Request{Type: Reboot}, 0, noon.Add(15*time.Minute + time.Second), Scheduled},
		"a redeployment":      {Request{Type: Redeploy}, 0, noon.Add(10*time.Minute + time.Second), Scheduled},
		"a spot eviction":     {Request{Type: Preempt}, 0, noon.Add(31 * time.Second), Scheduled},
		"a configured delete": {Request{Type: Terminate}, 7 * time.Minute, noon.Add(7*time.Minute + time.Second), Scheduled},
		"a notice of one's own": {Request{Type: Freeze, Notice: notice(900 * time.Millisecond)}, 0, noon.Add(time.Second),
			Scheduled},
		"a failure of hardware": {Request{Type: Reboot, Notice: notice(0)}, 0, now, Started},
		"a type that Azure adds": {Request{Type: "Hibernate", Notice: notice(time.Minute)}, 0, noon.Add(61 * time.Second),
			Scheduled},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.request.event([]string{"node-1"}, test.terminate, now)
			if err != nil || !got.NotBefore.Equal(test.notBefore) || got.Status != test.status {
				t.Errorf("%s at %s, %v, want %s at %s", got.Status, got.NotBefore, err, test.status, test.notBefore)
			}
			if got.Source != "Platform" || got.DurationSeconds != -1 || time.Duration(got.StartedFor) != DefaultStartedFor {
				t.Errorf("got %+v, want the defaults", got)
			}
		})
	}
	for name, request := range map[string]Request{
		"no type":                        {Notice: notice(time.Minute)},
		"no configured notice":           {Type: Terminate},
		"an unknown type without notice": {Type: "freeze"},
		"a negative notice":              {Type: Freeze, Notice: notice(-time.Second)},
		"an unknown source":              {Type: Freeze, Source: "Guest"},
	} {
		if got, err := request.event([]string{"node-1"}, 0, now); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}
