package nodereport

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

func announced(ids ...string) *apiv1.NodeMaintenance {
	m := &apiv1.NodeMaintenance{}
	for _, id := range ids {
		m.Events = append(m.Events, apiv1.MaintenanceEvent{EventID: id, Type: apiv1.MaintenanceFreeze, Started: true})
	}
	return m
}

func eventIDs(d *apiv1.AzDriverNode) (ids string) {
	if d.Status.Maintenance == nil {
		return "unset"
	}
	for _, e := range d.Status.Maintenance.Events {
		ids += e.EventID
	}
	return ids
}

func TestWhatAzureAnnouncesIsWrittenAtOnce(t *testing.T) {
	api := newAPI(t)
	r, clock := start(t, api)
	for _, step := range []struct {
		set  *apiv1.NodeMaintenance
		want string
	}{{announced("a"), "a"}, {announced("a", "b"), "ab"}, {announced(), ""}, {announced("b"), "b"}, {nil, "unset"}} {
		r.SetMaintenance(step.set)
		await(t, api, clock, "want the events "+step.want, func(d *apiv1.AzDriverNode) bool { return eventIDs(d) == step.want })
	}
}

func TestNoWriteOfItsOwnSaysThatNothingIsAnnounced(t *testing.T) {
	api := newAPI(t)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	if err := r.EnsureScanned(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-r.wake // of the start
	r.SetMaintenance(announced())
	select {
	case <-r.wake:
		t.Error("a write was asked for")
	default:
	}
	if _, err := r.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := eventIDs(get(t, api)); got != "" {
		t.Errorf("after the next heartbeat: got %q, want no events", got)
	}
}

func TestAnnouncementsStayUntilTheNextProcessKnowsBetter(t *testing.T) {
	api := newAPI(t)
	former, _ := newReporter(t, api, newScanner(t, &mountList{}))
	former.SetMaintenance(announced("a"))
	if err := former.EnsureScanned(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, clock := start(t, api)
	if got := eventIDs(get(t, api)); got != "a" {
		t.Errorf("after the restart: got the events %q, want those of the former process", got)
	}
	r.SetMaintenance(announced())
	await(t, api, clock, "the events have ended", func(d *apiv1.AzDriverNode) bool { return eventIDs(d) == "" })
}
