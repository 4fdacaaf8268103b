package imds_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/node/imds"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

func TestScheduledEventsAreReadAsAzureServesThem(t *testing.T) {
	const document = `{"DocumentIncarnation":1,"Events":[{"EventId":"C1","EventStatus":"Started","EventType":"Freeze",
		"ResourceType":"VirtualMachine","Resources":["node-a"],"NotBefore":"","Description":"","EventSource":"Platform",
		"DurationInSeconds":6}]}`
	for name, c := range map[string]struct {
		status int
		body   string
		// fault is part of the error; "" for none, with that many events.
		fault  string
		events int
	}{
		"an event":             {200, document, "", 1},
		"no events":            {200, `{"DocumentIncarnation":1,"Events":[]}`, "", 0},
		"an event that is not": {200, `{"DocumentIncarnation":1,"Events":[null]}`, "", 1},
		"no list of events":    {200, `{"DocumentIncarnation":1}`, "no list", 0},
		"null":                 {200, `null`, "no list", 0},
		"another document":     {200, `<html>proxy</html>`, "parse", 0},
		"half of a document":   {200, document[:90], "parse", 0},
		"another type":         {200, `{"Events":[{"EventId":7}]}`, "parse", 0},
		"too many requests":    {429, `{"error":"slow down"}`, "429", 0},
		"not there":            {404, ``, "404", 0},
		"more than a megabyte": {200, `{"Events":[],"x":"` + strings.Repeat("x", 2<<20) + `"}`, "parse", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				const want = "/metadata/scheduledevents?api-version=2020-07-01"
				if r.Header.Get("Metadata") != "true" || r.URL.RequestURI() != want {
					t.Errorf("request = %s %v", r.URL, r.Header)
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			events := imds.Events{Endpoint: server.URL + "/"}
			for range 2 {
				got, err := events.Read(t.Context())
				if c.fault == "" && (err != nil || len(got.Events) != c.events) {
					t.Errorf("got %+v, %v; want %d events", got, err, c.events)
				}
				if c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
					t.Errorf("got %+v, %v; want an error with %q", got, err, c.fault)
				}
			}
		})
	}
}

func TestAReadOfEventsEndsIfTheServiceDoesNotAnswer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	events := imds.Events{Endpoint: server.URL}
	if got, err := events.Read(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v; want that the time is up", got, err)
	}
}

// service is the instance metadata of a VM whose time a test decides.
type service struct {
	mu     sync.Mutex // the Follower reads while the test changes
	events []string
	fault  error
	reads  int
}

func (s *service) read(context.Context) (maintenance.Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	document := maintenance.Document{}
	for _, id := range s.events {
		document.Events = append(document.Events, maintenance.DocumentEvent{
			EventID: id, EventType: "Freeze", EventStatus: "Started", Resources: []string{"node-a"},
		})
	}
	return document, s.fault
}

func (s *service) answers(events []string, fault error) (reads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.fault = events, fault
	return s.reads
}

func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{fault: errors.New("no route")}
		var reports []string
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- imds.Follower{
				Read: s.read,
				VMID: vm,
				Report: func(m *apiv1.NodeMaintenance) {
					text := "unknown"
					if m != nil {
						text = "events"
						for _, e := range m.Events {
							text += " " + e.EventID
						}
					}
					reports = append(reports, text)
				},
				Clock: clock.RealClock{},
			}.Start(ctx)
		}()
		for _, step := range []struct {
			name    string
			events  []string
			fault   error
			pass    time.Duration
			reports string
			// reads that are made, at least and at most.
			least, most int
		}{
			{"nothing is reported before the service has answered", nil, s.fault, 4 * time.Minute, "", 5, 15},
			{"it does not answer", nil, s.fault, 2 * time.Minute, "unknown", 2, 5},
			{"it answers", nil, nil, time.Minute, "unknown, events", 25, 61},
			{"an event begins", []string{"a"}, nil, time.Second, "unknown, events, events a", 1, 2},
			{"and lasts", []string{"a"}, nil, time.Minute, "unknown, events, events a", 59, 61},
			{"it fails for a moment", nil, s.fault, 4 * time.Minute, "unknown, events, events a", 5, 15},
			{"it fails for long", nil, s.fault, 2 * time.Minute, "unknown, events, events a, unknown", 2, 5},
			{"another event begins", []string{"b"}, nil, 31 * time.Second, "unknown, events, events a, unknown, events b", 1, 32},
			{"and ends", nil, nil, time.Second, "unknown, events, events a, unknown, events b, events", 1, 2},
		} {
			before := s.answers(step.events, step.fault)
			time.Sleep(step.pass)
			synctest.Wait()
			if got := strings.Join(reports, ", "); got != step.reports {
				t.Errorf("%s: got %q, want %q", step.name, got, step.reports)
			}
			if made := s.reads - before; made < step.least || made > step.most {
				t.Errorf("%s: got %d reads, want %d to %d", step.name, made, step.least, step.most)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
