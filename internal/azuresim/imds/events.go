package imds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/scheduledevents"
)

// Events knows the scheduled events that are delivered to the VM.
type Events interface {
	// Document returns the events as they are now.
	Document(ctx context.Context) (scheduledevents.Document, error)
	// Approve lets the events start before their time. It fails with scheduledevents.ErrUnknown if
	// one of them is not in the document.
	Approve(ctx context.Context, ids []string) error
}

// NoEvents are the Events of a VM for which none are known.
type NoEvents struct{}

// Document implements Events.
func (NoEvents) Document(context.Context) (scheduledevents.Document, error) {
	return scheduledevents.Document{Incarnation: 1}, nil
}

// Approve implements Events.
func (NoEvents) Approve(context.Context, []string) error { return scheduledevents.ErrUnknown }

// Versions of the API with which an event got a type or a field.
const (
	namesWithoutUnderscore = "2017-08-01"
	withPreempt            = "2017-11-01"
	withTerminate          = "2019-01-01"
	withDescription        = "2019-04-01"
	withSource             = "2019-08-01"
	withDuration           = "2020-07-01"
)

// maxApprovalBytes bounds the body of an approval.
const maxApprovalBytes = 1 << 20

// eventView is an event as the metadata service writes it.
type eventView struct {
	EventID           string   `json:"EventId"`
	EventStatus       string   `json:"EventStatus"`
	EventType         string   `json:"EventType"`
	ResourceType      string   `json:"ResourceType"`
	Resources         []string `json:"Resources"`
	NotBefore         string   `json:"NotBefore"`
	Description       *string  `json:"Description,omitempty"`
	EventSource       *string  `json:"EventSource,omitempty"`
	DurationInSeconds *int     `json:"DurationInSeconds,omitempty"`
}

// viewOf writes an event in the form of the version. has is false for an event of a type that the
// version does not have.
func viewOf(e scheduledevents.Event, version string) (view eventView, has bool) {
	since := map[string]string{
		scheduledevents.Freeze:    "",
		scheduledevents.Reboot:    "",
		scheduledevents.Redeploy:  "",
		scheduledevents.Preempt:   withPreempt,
		scheduledevents.Terminate: withTerminate,
	}
	from, known := since[e.Type]
	if !known {
		from = withDuration
	}
	view = eventView{
		EventID:      e.ID,
		EventStatus:  e.Status,
		EventType:    e.Type,
		ResourceType: "VirtualMachine",
		Resources:    slices.Clone(e.VMs),
	}
	if e.Status == scheduledevents.Scheduled {
		view.NotBefore = e.NotBefore.UTC().Format(http.TimeFormat)
	}
	if version < namesWithoutUnderscore {
		for i := range view.Resources {
			view.Resources[i] = "_" + view.Resources[i]
		}
	}
	if version >= withDescription {
		view.Description = &e.Description
	}
	if version >= withSource {
		view.EventSource = &e.Source
	}
	if version >= withDuration {
		view.DurationInSeconds = &e.DurationSeconds
	}
	return view, version >= from
}

// scheduledEvents answers with the document, and takes approvals.
func (s *Server) scheduledEvents(w http.ResponseWriter, r *http.Request) {
	if !admitVersion(w, r, eventVersions, http.MethodGet, http.MethodPost) {
		return
	}
	if r.Method == http.MethodPost {
		s.approve(w, r)
		return
	}
	document, err := s.Events.Document(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	views := []eventView{}
	for _, e := range document.Events {
		if view, has := viewOf(e, r.URL.Query().Get("api-version")); has {
			views = append(views, view)
		}
	}
	answer(w, http.StatusOK, struct {
		DocumentIncarnation int
		Events              []eventView
	}{document.Incarnation, views})
}

func (s *Server) approve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		StartRequests []struct {
			EventID string `json:"EventId"`
		}
	}
	err := json.NewDecoder(io.LimitReader(r.Body, maxApprovalBytes)).Decode(&body)
	if err != nil || len(body.StartRequests) == 0 {
		refuse(w, http.StatusBadRequest, "Bad request. The body must list StartRequests")
		return
	}
	var ids []string
	for _, request := range body.StartRequests {
		ids = append(ids, request.EventID)
	}
	err = s.Events.Approve(r.Context(), ids)
	switch {
	case errors.Is(err, scheduledevents.ErrUnknown):
		refuse(w, http.StatusBadRequest, "Bad request. An EventId is not valid")
	case err != nil:
		s.fail(w, r, err)
	default:
		w.Header().Set("Server", "IMDS")
		w.WriteHeader(http.StatusOK)
	}
}

// AdminEvents are the Events of a VM at the admin API.
type AdminEvents struct {
	// Endpoint is that of the admin API; Client reaches it.
	Endpoint string
	Client   *http.Client
	// ResourceID is that of the VM or of the instance of a uniform scale set.
	ResourceID string
}

// Document implements Events.
func (a *AdminEvents) Document(ctx context.Context) (scheduledevents.Document, error) {
	var document scheduledevents.Document
	return document, a.call(ctx, http.MethodGet, nil, &document)
}

// Approve implements Events.
func (a *AdminEvents) Approve(ctx context.Context, ids []string) error {
	return a.call(ctx, http.MethodPost, map[string][]string{"approve": ids}, nil)
}

func (a *AdminEvents) call(ctx context.Context, method string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	target := strings.TrimSuffix(a.Endpoint, "/") + "/admin/vms/" + url.PathEscape(planeName(a.ResourceID)) + "/scheduled-events"
	//nolint:gosec // the endpoint is a flag of the program
	request, err := http.NewRequestWithContext(ctx, method, target, &body)
	if err != nil {
		return fmt.Errorf("make a request for scheduled events: %w", err)
	}
	response, err := a.Client.Do(request) //nolint:gosec // as above
	if err != nil {
		return fmt.Errorf("ask for scheduled events: %w", err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound && method == http.MethodPost:
		return scheduledevents.ErrUnknown
	case response.StatusCode/100 != 2:
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxApprovalBytes))
		return fmt.Errorf("ask for scheduled events: %s: %.300s", response.Status, text)
	case out == nil:
		return nil
	}
	return json.NewDecoder(response.Body).Decode(out)
}

// planeName is the name of the VM on the data plane, by which the admin API knows it.
func planeName(id string) string {
	parts := idParts(id)
	if set := parts["virtualmachinescalesets"]; set != "" {
		return set + "_" + parts["virtualmachines"]
	}
	return parts["virtualmachines"]
}
