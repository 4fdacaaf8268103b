package supervisor

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/controlplane"
	"github.com/azuredisk-csi/azuredisk/playground/process"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// handler serves the commands. Errors are answered as text with a status of 4xx or 5xx.
func (s *Supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.status(), nil)
	})
	mux.HandleFunc("GET /events", s.serveEvents)
	mux.HandleFunc("POST /nodes/{name}/{action}", s.whenReady(func(r *http.Request) (any, error) {
		return struct{}{}, s.act(r.Context(), r.PathValue("name"), r.PathValue("action"))
	}))
	mux.HandleFunc("POST /nodes/{name}/freeze", s.whenReady(func(r *http.Request) (any, error) { return s.freezeNode(r) }))
	mux.HandleFunc("PUT /pools/{name}", s.whenReady(func(r *http.Request) (any, error) { return struct{}{}, s.setPool(r) }))
	mux.HandleFunc("POST /images", s.whenReady(func(r *http.Request) (any, error) {
		return struct{}{}, s.load(r.Context(), r.Body)
	}))
	mux.HandleFunc("PUT /scheduler/extender", s.whenReady(func(r *http.Request) (any, error) {
		var extender *controlplane.Extender
		if err := json.NewDecoder(r.Body).Decode(&extender); err != nil {
			return nil, fmt.Errorf("read the extender: %w", err)
		}
		return struct{}{}, s.controlPlane.SetExtender(extender)
	}))
	mux.HandleFunc("POST /forward", func(w http.ResponseWriter, r *http.Request) {
		address, err := s.forward(r.Context(), r.URL.Query().Get("to"))
		answer(w, map[string]string{"address": address}, err)
	})
	return mux
}

func (s *Supervisor) whenReady(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if status := s.status(); status.Phase != state.Ready {
			http.Error(w, "the playground is not ready: "+status.Phase+" "+status.Error, http.StatusConflict)
			return
		}
		value, err := f(r)
		answer(w, value, err)
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// serveEvents answers with one JSON value per event, until the playground is ready
// or has failed.
func (s *Supervisor) serveEvents(w http.ResponseWriter, r *http.Request) {
	encoder := json.NewEncoder(w)
	flusher := http.NewResponseController(w)
	_ = s.events.follow(r.Context(), func(e state.Event) error {
		if err := encoder.Encode(e); err != nil {
			return err
		}
		return flusher.Flush()
	})
}

func (s *Supervisor) status() state.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := state.Status{
		Phase:         s.phase,
		Started:       s.started,
		Server:        s.server,
		Cgroups:       s.cgroups.Describe(),
		SupervisorPID: os.Getpid(),
	}
	if s.failure != nil {
		status.Error = s.failure.Error()
	}
	if s.controlPlane != nil {
		status.Components = append(status.Components, s.controlPlane.Components()...)
	}
	status.Azure, status.AzureHost, status.AzureAdmin = s.armURL, s.armHostURL, s.adminURL
	if s.azure != nil {
		status.Components = append(status.Components, s.azure.Components()...)
	}
	slices.SortFunc(status.Components, func(a, b process.Component) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range s.plan.Nodes {
		node := state.NodeStatus{
			Name:      n.Name,
			Address:   n.Address.String(),
			Zone:      n.ZoneLabel(),
			Connected: s.connected[n.Name],
			Frozen:    s.frozen[n.Name] != nil,
		}
		if m := s.machines[n.Name]; m != nil {
			node.PID = m.PID()
			node.Power = node.PID != 0
		}
		status.Nodes = append(status.Nodes, node)
	}
	return status
}
