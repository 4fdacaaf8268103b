// Package admin is the API for the operator of the simulator: faults, latencies, power, network and
// scheduled events of VMs, the record of calls, quotas, and reset. It is served on a listener of
// its own and never on the one that clients of Azure see.
package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/arm"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/scheduledevents"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/throttle"
)

// Options of the API. Limiter is nil if there are no quotas.
type Options struct {
	Cloud     *compute.Cloud
	Faults    *faults.Set
	Audit     *audit.Log
	Limiter   *throttle.Limiter
	Authority *auth.Authority
	Directory *auth.Directory
	Events    *Events
	Latency   *latency.Sampler
	// ScheduledEvents are the maintenance events of the VMs.
	ScheduledEvents *scheduledevents.Schedule
}

// New returns the handler.
func New(o Options) http.Handler {
	a := &api{o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /admin/requests", a.requests)
	mux.HandleFunc("DELETE /admin/requests", a.forgetRequests)
	mux.HandleFunc("GET /admin/faults", a.listFaults)
	mux.HandleFunc("POST /admin/faults", a.addFault)
	mux.HandleFunc("DELETE /admin/faults", a.resetFaults)
	mux.HandleFunc("DELETE /admin/faults/{id}", a.removeFault)
	mux.HandleFunc("GET /admin/vms", a.vms)
	mux.HandleFunc("POST /admin/vms/{vm}/{action}", a.changeVM)
	mux.HandleFunc("GET /admin/vms/{vm}/scheduled-events", a.eventsOfVM)
	mux.HandleFunc("POST /admin/vms/{vm}/scheduled-events", a.approveEvents)
	mux.HandleFunc("GET /admin/scheduled-events", a.listScheduledEvents)
	mux.HandleFunc("POST /admin/scheduled-events", a.addScheduledEvent)
	mux.HandleFunc("PATCH /admin/scheduled-events/{id}", a.postponeScheduledEvent)
	mux.HandleFunc("POST /admin/scheduled-events/{id}/start", a.startScheduledEvent)
	mux.HandleFunc("DELETE /admin/scheduled-events/{id}", a.removeScheduledEvent)
	mux.HandleFunc("GET /admin/reservations", a.reservations)
	mux.HandleFunc("GET /admin/events", a.Events.stream)
	mux.HandleFunc("GET /admin/latency", func(w http.ResponseWriter, _ *http.Request) { write(w, a.Latency.Profile()) })
	mux.HandleFunc("PUT /admin/latency", a.setLatency)
	mux.HandleFunc("PUT /admin/goal-state", a.setGoalState)
	mux.HandleFunc("PUT /admin/quotas/{name}", a.setQuota)
	mux.HandleFunc("POST /admin/reset", a.reset)
	mux.HandleFunc("POST /admin/reconcile", a.reconcile)
	mux.HandleFunc("GET /admin/check", a.check)
	mux.HandleFunc("POST /admin/tokens", a.token)
	mux.HandleFunc("GET /admin/applications", a.listApplications)
	mux.HandleFunc("PUT /admin/applications/{client}", a.putApplication)
	mux.HandleFunc("DELETE /admin/applications/{client}", a.deleteApplication)
	mux.HandleFunc("PUT /admin/roles/{client}", a.putRoles)
	mux.HandleFunc("DELETE /admin/roles/{client}", a.deleteRoles)
	return mux
}

type api struct{ Options }

func write(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(body) // it fails only if the client is gone
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if e, ok := errors.AsType[*armerror.Error](err); ok {
		status = e.Status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

// requests returns the calls seen: since=<sequence number or RFC 3339 time>, writes=true, api=,
// kind=, name= narrow them down.
func (a *api) requests(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var seq uint64
	var from time.Time
	if since := q.Get("since"); since != "" {
		var err error
		if seq, err = strconv.ParseUint(since, 10, 64); err != nil {
			if from, err = time.Parse(time.RFC3339Nano, since); err != nil {
				refuse(w, errors.New("since: must be a sequence number or an RFC 3339 time"))
				return
			}
		}
	}
	match := func(want, got string) bool { return want == "" || strings.EqualFold(want, got) }
	write(w, a.Audit.Since(func(rec audit.Record) bool {
		return rec.Seq > seq && !rec.Time.Before(from) && (q.Get("writes") != "true" || rec.IsWrite()) &&
			match(q.Get("api"), rec.API) && match(q.Get("kind"), rec.Kind) && match(q.Get("name"), rec.Name)
	}))
}

func (a *api) forgetRequests(w http.ResponseWriter, _ *http.Request) {
	a.Audit.Reset()
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) listFaults(w http.ResponseWriter, _ *http.Request) { write(w, a.Faults.List()) }

func (a *api) addFault(w http.ResponseWriter, r *http.Request) {
	var rule faults.Rule
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rule); err != nil {
		refuse(w, err)
		return
	}
	added, err := a.Faults.Add(rule)
	if err != nil {
		refuse(w, err)
		return
	}
	write(w, added)
}

func (a *api) resetFaults(w http.ResponseWriter, _ *http.Request) {
	a.Faults.Reset()
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) removeFault(w http.ResponseWriter, r *http.Request) {
	if !a.Faults.Remove(r.PathValue("id")) {
		refuse(w, armerror.New(http.StatusNotFound, "NotFound", "there is no fault %s", r.PathValue("id")))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// vm is how a VM is listed.
type vm struct {
	VM           string   `json:"vm"`
	ID           string   `json:"id"`
	Zone         string   `json:"zone,omitempty"`
	Power        string   `json:"power"`
	Provisioning string   `json:"provisioning"`
	PowerCut     bool     `json:"powerCut"`
	NetworkCut   bool     `json:"networkCut"`
	Disks        []vmDisk `json:"disks"`
}

type vmDisk struct {
	LUN   int    `json:"lun"`
	Disk  string `json:"disk"`
	State string `json:"state"`
}

func (a *api) vms(w http.ResponseWriter, _ *http.Request) {
	all, err := a.Cloud.AllVMs()
	if err != nil {
		refuse(w, err)
		return
	}
	list := make([]vm, 0, len(all))
	for _, m := range all {
		v := vm{
			VM:           m.PlaneKey,
			ID:           m.ID.String(),
			Power:        m.Power,
			Provisioning: m.Provisioning,
			PowerCut:     m.PowerCut,
			NetworkCut:   m.NetworkCut,
			Disks:        []vmDisk{},
		}
		v.Zone = strings.Join(m.Zones, ",")
		for _, d := range m.Disks {
			v.Disks = append(v.Disks, vmDisk{d.LUN, d.Disk.Name, d.State})
		}
		list = append(list, v)
	}
	write(w, list)
}

// changeVM cuts or restores a VM's power or network. It answers when the effect is there.
func (a *api) changeVM(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("vm")
	var err error
	switch r.PathValue("action") {
	case "power-cut":
		report := r.URL.Query().Get("report")
		if report != "" && report != "running" && report != "stopped" {
			err = errors.New("report: must be running or stopped")
			break
		}
		err = a.Cloud.CutPower(r.Context(), name, report == "stopped")
	case "power-restore":
		err = a.Cloud.RestorePower(r.Context(), name)
	case "network-cut":
		err = a.Cloud.SetNetworkCut(name, true)
	case "network-restore":
		err = a.Cloud.SetNetworkCut(name, false)
	default:
		err = armerror.New(http.StatusNotFound, "NotFound",
			"unknown action; known are power-cut, power-restore, network-cut, network-restore")
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// setLatency changes how long things take from now on: name= is a built-in profile, and without it
// the body is one.
func (a *api) setLatency(w http.ResponseWriter, r *http.Request) {
	profile, known := latency.ByName(r.URL.Query().Get("name"))
	if !known {
		if name := r.URL.Query().Get("name"); name != "" {
			refuse(w, errors.New("name: "+strconv.Quote(name)+" must be realistic or fast"))
			return
		}
		var err error
		if profile, err = latency.Parse(r.Body); err != nil {
			refuse(w, err)
			return
		}
	}
	a.Latency.Use(profile)
	w.WriteHeader(http.StatusNoContent)
}

// setGoalState chooses whether VMs list what they are to have: value= is on or off.
func (a *api) setGoalState(w http.ResponseWriter, r *http.Request) {
	value := r.URL.Query().Get("value")
	if value != "on" && value != "off" {
		refuse(w, errors.New("value: "+strconv.Quote(value)+" must be on or off"))
		return
	}
	a.Cloud.ListGoalState(value == "on")
	w.WriteHeader(http.StatusNoContent)
}

// reset forgets faults, calls and used quota; resources stay.
func (a *api) reset(w http.ResponseWriter, _ *http.Request) {
	a.Faults.Reset()
	a.Audit.Reset()
	if a.Limiter != nil {
		a.Limiter.Reset()
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) reconcile(w http.ResponseWriter, r *http.Request) {
	if err := a.Cloud.ReconcilePlane(r.Context()); err != nil {
		refuse(w, armerror.From(err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// check answers with the contradictions in the model and, if nothing is under way, between model
// and data plane.
func (a *api) check(w http.ResponseWriter, r *http.Request) {
	err := a.Cloud.Check()
	idle := false
	if err == nil {
		idle, err = a.Cloud.CheckPlane(r.Context())
	}
	if err != nil {
		refuse(w, armerror.New(http.StatusConflict, "Inconsistent", "%s", err))
		return
	}
	write(w, map[string]bool{"consistent": true, "idle": idle})
}

// token issues a token for a program that simulates a managed identity.
func (a *api) token(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Client   string `json:"client_id"`
		Resource string `json:"resource"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, err)
		return
	}
	token, expires, err := a.Authority.Issue(arm.Tenant, in.Client, in.Resource)
	if err != nil {
		refuse(w, armerror.From(err))
		return
	}
	write(w, arm.TokenDocument(token, in.Resource, expires, a.Authority.Lifetime))
}
