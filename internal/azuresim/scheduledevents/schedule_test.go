package scheduledevents_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/scheduledevents"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// alone has every VM share its events with no other.
type alone struct{}

func (alone) EventScope(vm string) (compute.EventScope, error) {
	return compute.EventScope{Key: vm, Name: vm}, nil
}

func TestEventsSurviveARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "azuresim.db")
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	open := func() (*store.Store, *scheduledevents.Schedule) {
		db, err := store.Open(file, time.Second, scheduledevents.Tables...)
		if err != nil {
			t.Fatal(err)
		}
		return db, &scheduledevents.Schedule{Store: db, Clock: clock, Scopes: alone{}}
	}
	db, schedule := open()
	made, err := schedule.Create(scheduledevents.Request{Type: scheduledevents.Reboot, VMs: []string{"node-1"}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := schedule.Of("node-1")
	if err != nil || len(want.Events) != 1 || want.Events[0].ID != made.ID {
		t.Fatalf("got %+v, %v, want the event %s", want, err, made.ID)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, schedule = open()
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	got, err := schedule.Of("node-1")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, after the restart (-want +got): %s", err, diff)
	}
	clock.SetTime(made.NotBefore)
	if err := schedule.Remove(made.ID); err != nil {
		t.Error(err)
	}
	// The start, which nothing wrote, counts as a change.
	if got, err = schedule.Of("node-1"); err != nil || got.Incarnation != want.Incarnation+2 || len(got.Events) != 0 {
		t.Errorf("ended, got %+v, %v, want no event and incarnation %d", got, err, want.Incarnation+2)
	}
}
