package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/scheduledevents"
)

func (a *api) listScheduledEvents(w http.ResponseWriter, _ *http.Request) {
	events, err := a.ScheduledEvents.All()
	if err != nil {
		refuse(w, err)
		return
	}
	write(w, events)
}

// addScheduledEvent makes an event and answers with it.
func (a *api) addScheduledEvent(w http.ResponseWriter, r *http.Request) {
	var in scheduledevents.Request
	if !decodeStrictly(w, r, &in) {
		return
	}
	event, err := a.ScheduledEvents.Create(in)
	if err != nil {
		refuse(w, err)
		return
	}
	write(w, event)
}

// postponeScheduledEvent has an event start at a time from now, as in {"notice": "5m"}.
func (a *api) postponeScheduledEvent(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Notice latency.Duration `json:"notice"`
	}
	if decodeStrictly(w, r, &in) {
		a.eventDone(w, a.ScheduledEvents.Postpone(r.PathValue("id"), time.Duration(in.Notice)))
	}
}

func (a *api) startScheduledEvent(w http.ResponseWriter, r *http.Request) {
	a.eventDone(w, a.ScheduledEvents.Start(r.PathValue("id")))
}

func (a *api) removeScheduledEvent(w http.ResponseWriter, r *http.Request) {
	a.eventDone(w, a.ScheduledEvents.Remove(r.PathValue("id")))
}

// eventsOfVM answers with the document that is delivered to a VM.
func (a *api) eventsOfVM(w http.ResponseWriter, r *http.Request) {
	document, err := a.ScheduledEvents.Of(r.PathValue("vm"))
	if err != nil {
		refuse(w, err)
		return
	}
	write(w, document)
}

// approveEvents is for the metadata service of a VM, as in {"approve": ["ID"]}.
func (a *api) approveEvents(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Approve []string `json:"approve"`
	}
	if decodeStrictly(w, r, &in) {
		a.eventDone(w, a.ScheduledEvents.Approve(r.PathValue("vm"), in.Approve))
	}
}

func (a *api) eventDone(w http.ResponseWriter, err error) {
	if errors.Is(err, scheduledevents.ErrUnknown) {
		err = armerror.New(http.StatusNotFound, "NotFound", "%s", err)
	}
	a.done(w, err)
}

// decodeStrictly reads a body without unknown members.
func decodeStrictly(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err != nil {
		refuse(w, err)
	}
	return err == nil
}
