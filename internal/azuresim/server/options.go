// Package server puts the simulator together and runs it: store, model, data plane, the Azure
// listener and the admin listener.
package server

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/skus"
)

// Options are the flags of `azuresim serve`.
type Options struct {
	Listen         string   // host:port, or the path of a unix socket
	AdminListen    string   // the same; empty: no admin API
	StateDir       string   // made if it is missing
	Latency        string   // realistic, fast, or the path of a JSON profile
	Seed           int64    // of the latencies, of Reservations and of GoalState
	Reservations   string   // keep, lose or seed
	GoalState      string   // on, off, or seed: on if Seed is even
	AttachDetach   string   // on, or for what attachDetachDataDisks is not enabled: subscription or region
	Throttle       string   // on or off
	Auth           string   // on or off
	Clients        []string // client-id=secret pairs that may ask for tokens; none: every client may
	Applications   []string // client-id=path pairs; the files hold applications with credentials of all kinds
	Roles          []string // client-id=path pairs; the files hold role definitions; none: every client may do everything
	TokenLifetime  time.Duration
	Hypervisor     string // unix socket of the data plane; empty: none
	Subscriptions  []string
	ResourceGroups []string // made in every subscription at start
	Location       string   // of those resource groups
	Quotas         []string // NAME=LIMIT pairs: counters whose limit is not Azure's default
	PageSize       int
	TLSCert        string
	TLSKey         string
	LogLevel       string
	// ListenOn listens at Listen and AdminListen; on sockets if nil.
	ListenOn func(address string) (net.Listener, error)
}

// Defaults are the options without flags.
func Defaults() Options {
	return Options{
		Listen:         "127.0.0.1:8080",
		AdminListen:    "127.0.0.1:8081",
		StateDir:       "azuresim-state",
		Latency:        "realistic",
		Seed:           1,
		Reservations:   "seed",
		GoalState:      "seed",
		AttachDetach:   "on",
		Throttle:       "on",
		Auth:           "off",
		Subscriptions:  []string{"00000000-0000-0000-0000-000000000001"},
		ResourceGroups: []string{"default"},
		Location:       "eastus",
		PageSize:       100,
		LogLevel:       "info",
		TokenLifetime:  auth.Lifetime,
	}
}

// settings are options that were found good.
type settings struct {
	Options
	profile *latency.Profile
	// applications and roles by client ID.
	applications map[string]auth.Application
	roles        map[string]auth.Assignment
	quotas       map[string]int64
	tls          *tls.Config
	level        slog.Level
}

// resolve checks every option and reports every fault.
func (o Options) resolve() (settings, error) {
	s := settings{
		Options:      o,
		applications: map[string]auth.Application{},
		roles:        map[string]auth.Assignment{},
		quotas:       map[string]int64{},
	}
	var faults []error
	fault := func(flag string, format string, args ...any) {
		faults = append(faults, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	checkAddress("listen", o.Listen, fault)
	if o.AdminListen != "" {
		checkAddress("admin-listen", o.AdminListen, fault)
		if o.AdminListen == o.Listen && !strings.HasSuffix(o.Listen, ":0") {
			fault("admin-listen", "must differ from --listen %s", o.Listen)
		}
	}
	if o.StateDir == "" {
		fault("state-dir", "must not be empty")
	}
	o.checkWords(fault)
	if _, ok := skus.LocationByName(o.Location); !ok {
		fault("location", "%q is not a simulated location", o.Location)
	}
	if len(o.Subscriptions) == 0 {
		fault("subscription", "at least one is needed")
	}
	for _, sub := range o.Subscriptions {
		if uuid.Validate(sub) != nil {
			fault("subscription", "%q is not a subscription ID, which is a UUID", sub)
		}
	}
	if o.PageSize < 1 {
		fault("page-size", "%d must be at least 1", o.PageSize)
	}
	if o.TokenLifetime < time.Second {
		fault("token-lifetime", "%s must be at least 1s", o.TokenLifetime)
	}
	s.loadDirectory(fault)
	s.loadQuotas(fault)
	if err := s.level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		fault("log-level", "%q must be debug, info, warn or error", o.LogLevel)
	}
	s.loadTLS(fault)
	s.loadProfile(fault)
	return s, errors.Join(faults...)
}

// checkWords checks the options that are one of a few words.
func (o Options) checkWords(fault func(flag, format string, args ...any)) {
	for _, f := range []struct{ flag, value string }{{"throttle", o.Throttle}, {"auth", o.Auth}} {
		if f.value != "on" && f.value != "off" {
			fault(f.flag, "%q must be on or off", f.value)
		}
	}
	if !slices.Contains([]string{"keep", "lose", "seed"}, o.Reservations) {
		fault("reservations", "%q must be keep, lose or seed", o.Reservations)
	}
	if !slices.Contains([]string{"on", "subscription", "region"}, o.AttachDetach) {
		fault("attach-detach", "%q must be on, subscription or region", o.AttachDetach)
	}
	if !slices.Contains([]string{"on", "off", "seed"}, o.GoalState) {
		fault("goal-state", "%q must be on, off or seed", o.GoalState)
	}
}

func (s *settings) loadQuotas(fault func(flag, format string, args ...any)) {
	for _, pair := range s.Quotas {
		name, text, _ := strings.Cut(pair, "=")
		limit, err := strconv.ParseInt(text, 10, 64)
		if !slices.Contains(compute.QuotaNames(), name) || err != nil || limit < 0 {
			fault("quota", "%q must be <counter>=<limit>, where the limit is 0 or more and the counter one of %s", pair,
				strings.Join(compute.QuotaNames(), ", "))
		}
		s.quotas[name] = limit
	}
}

func (s *settings) loadDirectory(fault func(flag, format string, args ...any)) {
	for _, pair := range s.Clients {
		id, secret, ok := strings.Cut(pair, "=")
		if !ok || id == "" || secret == "" {
			fault("client", "must be <client ID>=<secret>")
			continue
		}
		app := s.applications[id]
		app.Secrets = append(app.Secrets, secret)
		s.applications[id] = app
	}
	for _, pair := range s.Applications {
		var app auth.Application
		if id, err := readPair(pair, &app); err != nil {
			fault("application", "%s", err)
		} else {
			s.applications[id] = app
		}
	}
	for _, pair := range s.Roles {
		var role auth.Role
		if id, err := readPair(pair, &role); err != nil {
			fault("role", "%s", err)
		} else {
			s.roles[id] = append(s.roles[id], role)
		}
	}
}

// readPair reads what <client ID>=<file> names.
func readPair(pair string, into interface{ Validate() error }) (id string, err error) {
	id, path, ok := strings.Cut(pair, "=")
	if !ok || id == "" || path == "" {
		return "", errors.New("must be <client ID>=<file>")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if err := into.Validate(); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return id, nil
}

func checkAddress(flag, address string, fault func(flag, format string, args ...any)) {
	if isSocket(address) {
		return
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		fault(flag, "%q must be host:port or the path of a unix socket: %s", address, err)
	}
}

// isSocket: an address with a slash in it is the path of a unix socket.
func isSocket(address string) bool { return strings.Contains(address, "/") }

func (s *settings) loadTLS(fault func(flag, format string, args ...any)) {
	if s.TLSCert == "" && s.TLSKey == "" {
		return
	}
	if s.TLSCert == "" || s.TLSKey == "" {
		fault("tls-cert", "--tls-cert and --tls-key must be given together")
		return
	}
	pair, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
	if err != nil {
		fault("tls-cert", "%s", err)
		return
	}
	s.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

func (s *settings) loadProfile(fault func(flag, format string, args ...any)) {
	var builtIn bool
	if s.profile, builtIn = latency.ByName(s.Latency); builtIn {
		return
	}
	f, err := os.Open(s.Latency)
	if err != nil {
		fault("latency", "must be realistic, fast or a file: %s", err)
		return
	}
	defer f.Close()
	if s.profile, err = latency.Parse(f); err != nil {
		fault("latency", "%s: %s", s.Latency, err)
	}
}
