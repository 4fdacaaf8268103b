package server

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/admin"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/arm"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/scheduledevents"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/throttle"
)

const (
	storeLockWait = 3 * time.Second
	shutdownWait  = 5 * time.Second
)

// Run runs the simulator until ctx ends. It writes its log to logs and, when it is ready, one line
// to out.
func Run(ctx context.Context, o Options, out, logs io.Writer) error {
	s, err := o.resolve()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: s.level}))
	if err := os.MkdirAll(s.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	db, err := store.Open(filepath.Join(s.StateDir, "azuresim.db"), storeLockWait,
		slices.Concat(compute.Tables, operations.Tables, auth.Tables, scheduledevents.Tables)...)
	if err != nil {
		return err
	}
	defer db.Close()
	app, err := build(s, db, log)
	if err != nil {
		return err
	}
	return app.serve(ctx, s, out)
}

// app is the wired simulator.
type app struct {
	cloud *compute.Cloud
	arm   http.Handler
	admin http.Handler
}

// headerTimeout is how long a client may take to send the header of a request.
const headerTimeout = 10 * time.Second

func build(s settings, db *store.Store, log *slog.Logger) (*app, error) {
	realClock := clock.RealClock{}
	sampler := latency.NewSampler(s.profile, rand.New(rand.NewSource(s.Seed)))
	rules, calls, events := faults.New(realClock), &audit.Log{}, &admin.Events{}
	cloud := compute.New(compute.Options{
		Store:             db,
		Clock:             realClock,
		Log:               log,
		Plane:             s.plane(),
		Latency:           sampler,
		Subscriptions:     s.Subscriptions,
		LosesReservations: s.losesReservations,
		AttachDetachOff:   s.attachDetachOff(),
		GoalState:         s.GoalState == "on" || s.GoalState == "seed" && s.Seed%2 == 0,
		Intercept:         arm.OperationFaults(rules),
		Notify:            events.Send,
	})
	if err := s.fill(cloud); err != nil {
		return nil, err
	}
	authority, err := s.newAuthority(realClock)
	if err != nil {
		return nil, err
	}
	directory, err := auth.NewDirectory(db, s.applications, s.roles)
	if err != nil {
		return nil, err
	}
	var limiter *throttle.Limiter
	if s.Throttle == "on" {
		limiter = throttle.New(realClock)
	}
	return &app{
		cloud: cloud,
		arm: arm.New(arm.Options{
			Cloud:       cloud,
			Clock:       realClock,
			Log:         log,
			Latency:     sampler,
			Faults:      rules,
			Audit:       calls,
			Authority:   authority,
			CheckTokens: s.Auth == "on",
			Directory:   directory,
			Limiter:     limiter,
			PageSize:    s.PageSize,
		}),
		admin: admin.New(admin.Options{
			Cloud:           cloud,
			Faults:          rules,
			Audit:           calls,
			Limiter:         limiter,
			Authority:       authority,
			Directory:       directory,
			Events:          events,
			Latency:         sampler,
			ScheduledEvents: &scheduledevents.Schedule{Store: db, Clock: realClock, Scopes: cloud},
		}),
	}, nil
}

// attachDetachOff is for what attachDetachDataDisks is not enabled; "" if it is.
func (s settings) attachDetachOff() string {
	if s.AttachDetach == "on" {
		return ""
	}
	return s.AttachDetach
}

// losesReservations reports whether VMs lose their reservations at a disk. Azure does not document
// either, so with a seed there are disks of both kinds.
func (s settings) losesReservations(diskUID string) bool {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%d/%s", s.Seed, diskUID)
	return s.Reservations == "lose" || s.Reservations == "seed" && h.Sum32()%2 == 0
}

func (s settings) plane() dataplane.DataPlane {
	if s.Hypervisor == "" {
		return &dataplane.None{}
	}
	return hypervisor.NewClient(s.Hypervisor)
}

func (s settings) newAuthority(now clock.PassiveClock) (*auth.Authority, error) {
	key, err := auth.LoadKey(filepath.Join(s.StateDir, "token.key"))
	if err != nil {
		return nil, err
	}
	authority := auth.New(key, now)
	authority.Lifetime = s.TokenLifetime
	return authority, nil
}

// fill makes the resource groups and sets the quotas.
func (s settings) fill(cloud *compute.Cloud) error {
	for _, sub := range s.Subscriptions {
		for _, name := range s.ResourceGroups {
			if err := ensureGroup(cloud, compute.Group{
				Subscription: sub,
				Name:         name,
				Location:     s.Location,
			}); err != nil {
				return fmt.Errorf("make resource group %s: %w", name, err)
			}
		}
	}
	for name, limit := range s.quotas {
		if err := cloud.SetQuota(name, &limit); err != nil {
			return fmt.Errorf("set quota %s: %w", name, err)
		}
	}
	return nil
}

func ensureGroup(cloud *compute.Cloud, g compute.Group) error {
	if _, err := cloud.Group(g.Subscription, g.Name); err == nil {
		return nil
	}
	_, err := cloud.PutGroup(g)
	return err
}

func (a *app) serve(ctx context.Context, s settings, out io.Writer) error {
	listen := s.ListenOn
	if listen == nil {
		listen = onSocket
	}
	front, err := listen(s.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer front.Close()
	back, adminAt := net.Listener(nil), "none"
	if s.AdminListen != "" {
		if back, err = listen(s.AdminListen); err != nil {
			return fmt.Errorf("--admin-listen: %w", err)
		}
		defer back.Close()
		adminAt = back.Addr().String()
	}
	g, ctx := errgroup.WithContext(ctx)
	ready := func() {
		fmt.Fprintf(out, "azuresim is ready: azure=%s admin=%s state=%s latency=%s\n", front.Addr(), adminAt, s.StateDir,
			s.Latency)
		g.Go(func() error {
			return serveHTTP(ctx, &http.Server{
				Handler:           a.arm,
				TLSConfig:         s.tls,
				ReadHeaderTimeout: headerTimeout,
			}, front)
		})
		if back != nil {
			g.Go(func() error {
				return serveHTTP(ctx, &http.Server{Handler: a.admin, ReadHeaderTimeout: headerTimeout}, back)
			})
		}
	}
	g.Go(func() error { return a.cloud.Run(ctx, ready) })
	return g.Wait()
}

func onSocket(address string) (net.Listener, error) {
	if !isSocket(address) {
		return net.Listen("tcp", address)
	}
	// A socket file that an earlier process left behind is in the way; the store's lock has made
	// sure that no such process runs.
	if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	return net.Listen("unix", address)
}

// serveHTTP serves until ctx ends, then lets calls at work finish for a short while.
func serveHTTP(ctx context.Context, srv *http.Server, l net.Listener) error {
	srv.ReadHeaderTimeout = 30 * time.Second
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	}()
	var err error
	if srv.TLSConfig != nil {
		err = srv.ServeTLS(l, "", "")
	} else {
		err = srv.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	<-stopped
	return nil
}
