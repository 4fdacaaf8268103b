package simulation

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Pauses: Azure freezes machines, with and without an announcement, and processes get no time. What
// is frozen goes on later where it was, with all that it was about to do, and finds that the clock
// has jumped.

// Mutants of the patience with an announced pause.
const (
	// NoPatience: the controller sees no announcement.
	NoPatience Mutant = "no patience"
	// PatienceWithoutEnd: an announced pause excuses every silence (law 7).
	PatienceWithoutEnd Mutant = "patience without end"
)

// freeze is the pause of a machine.
type freeze struct {
	since time.Time
	// excused says that no driver may fence the machine because of it.
	excused bool
}

// announce makes Azure announce a freeze of a machine that may begin now.
func (w *world) announce(m *machine, lasts time.Duration) {
	w.announced++
	seconds := int64(lasts / time.Second)
	m.document = maintenance.Document{Events: []maintenance.DocumentEvent{{
		EventID:           fmt.Sprintf("event-%d", w.announced),
		EventType:         string(apiv1.MaintenanceFreeze),
		EventStatus:       "Scheduled",
		Resources:         []string{m.name},
		NotBefore:         w.now().UTC().Format(time.RFC1123),
		DurationInSeconds: &seconds,
	}}}
	w.note("Azure announces that it freezes %s for %s", m.name, lasts)
	m.readEvents()
}

// withdraw makes Azure announce nothing for a machine any more.
func (w *world) withdraw(m *machine) {
	if len(m.document.Events) == 0 {
		return
	}
	w.note("Azure announces nothing for %s any more", m.name)
	m.document = maintenance.Document{}
	m.readEvents()
}

// readEvents makes the node plug-in read what Azure has announced, as it does every second.
func (m *machine) readEvents() {
	if !m.w.pauses || !m.on {
		return
	}
	plugin, report := m.plugin, m.report
	go func() {
		m.w.yield(context.Background(), &access{by: plugin, what: "read the scheduled events", over: local})
		report.SetMaintenance(&apiv1.NodeMaintenance{Events: maintenance.Events(m.document, vmOf(m.name))})
	}()
	synctest.Wait()
}

// freeze stops a machine with all that runs on it.
func (m *machine) freeze(excused bool) {
	m.w.note("%s is frozen, excused: %t", m.name, excused)
	m.frozen = &freeze{since: m.w.now(), excused: excused}
	m.plugin.paused = true
}

// thaw ends the freeze.
func (m *machine) thaw() {
	if m.frozen == nil {
		return
	}
	m.w.note("%s goes on", m.name)
	m.frozen, m.plugin.paused = nil, false
}

// stall stops or continues something, in histories with pauses.
func (w *world) stall(m *machine) {
	switch {
	case m.frozen != nil:
		m.thaw()
		return
	case !m.on:
		return
	}
	lasts := time.Duration(1+w.random.IntN(15)) * time.Second
	switch w.random.IntN(4) {
	case 0:
		w.note("the plug-in of %s gets no time", m.name)
		plugin := m.plugin
		plugin.paused = true
		w.stepFor(lasts)
		plugin.paused = m.frozen != nil && plugin == m.plugin
		return
	case 1:
		m.freeze(false)
	case 2:
		w.withdraw(m)
		m.freeze(false)
	default:
		w.announce(m, lasts)
		w.stepFor(time.Duration(w.random.IntN(3000)) * time.Millisecond)
		if !m.on || m.frozen != nil {
			return
		}
		m.freeze(false)
	}
	w.stepFor(lasts)
	if w.random.IntN(4) > 0 {
		m.thaw()
	}
}

// stepFor steps for some time.
func (w *world) stepFor(d time.Duration) {
	w.within(d, func() bool { return false })
}

// playPauses plays in a world that has settled what a driver must do about an announced pause: it
// fences no machine because of it, and it fences one that stays silent.
func (w *world) playPauses(c *kubernetes) {
	if !w.pauses {
		return
	}
	for _, v := range w.volumes {
		m, next := w.machine(v.want), pick(w.random, w.hosts())
		if v.want == "" || next == m || !w.allWell() || w.severalOn(m) {
			continue
		}
		if w.awaitPause(v, m) {
			m.freeze(true)
			w.stepFor(pauseLasts)
			m.thaw()
			w.withdraw(m)
			w.until("every volume is where it is wanted after a pause", patience, c.place)
		}
		if w.awaitPause(v, m) {
			m.die()
			for _, moved := range w.volumes {
				if moved.want == m.name {
					moved.want = next.name
				}
			}
			w.until("a volume leaves a machine whose pause does not end", patience, c.place)
			w.power(m)
			w.withdraw(m)
			w.until("every volume is where it is wanted after a pause without end", patience, c.place)
		}
		return
	}
}

// severalOn reports whether a volume of several nodes is wanted on the machine.
func (w *world) severalOn(m *machine) bool {
	return slices.ContainsFunc(w.volumes, func(v *volumeModel) bool { return slices.Contains(v.wants, m.name) })
}

// pauseLasts is how long the pauses of playPauses are announced to last.
const pauseLasts = 10 * time.Second

// awaitPause announces a pause of a machine that uses a volume, and reports whether the leader knows
// that the machine is well, and the API server has the announcement.
func (w *world) awaitPause(v *volumeModel, m *machine) bool {
	w.announce(m, pauseLasts)
	return w.within(30*time.Second, func() bool {
		d, leader := w.report(m), w.leader()
		return d != nil && d.Status.Maintenance != nil && len(d.Status.Maintenance.Events) > 0 && leader != nil &&
			leader.monitor.Health(m.name).State == nodehealth.Healthy && ownership.OwnedBy(w.volume(v.name), m.name)
	})
}

// allWell reports whether all machines are well, so that the loss of one is not the loss of many.
func (w *world) allWell() bool {
	for _, m := range w.machines {
		if !m.well() {
			return false
		}
	}
	return true
}

// fencedInPause holds: no machine is fenced because of a pause that Azure has announced.
func (w *world) fencedInPause(before, after *apiv1.AzVolume) {
	for _, m := range w.machines {
		if m.frozen != nil && m.frozen.excused && ownership.FenceDecided(after, m.name) &&
			!ownership.FenceDecided(before, m.name) {
			w.broken("a pause is not a death: %s is fenced from %s %s after Azure has frozen it as announced", m.name, after.Name,
				w.now().Sub(m.frozen.since))
		}
	}
}

// haltingClock is the clock of a process. Its tickers stand still while the process does.
type haltingClock struct {
	clock.RealClock
	by *owner
}

// clockOf returns the clock of a process.
func (w *world) clockOf(by *owner) clock.WithTicker {
	if !w.pauses {
		return bubbleClock
	}
	return haltingClock{by: by}
}

// NewTicker implements clock.WithTicker.
func (c haltingClock) NewTicker(d time.Duration) clock.Ticker {
	t := haltingTicker{Ticker: c.RealClock.NewTicker(d), c: make(chan time.Time, 1), stop: make(chan struct{})}
	go func() {
		for {
			select {
			case now := <-t.Ticker.C():
				if c.by.paused {
					continue
				}
				select {
				case t.c <- now:
				default:
				}
			case <-t.stop:
				return
			}
		}
	}()
	return t
}

type haltingTicker struct {
	clock.Ticker
	c    chan time.Time
	stop chan struct{}
}

// C implements clock.Ticker.
func (t haltingTicker) C() <-chan time.Time { return t.c }

// Stop implements clock.Ticker.
func (t haltingTicker) Stop() {
	t.Ticker.Stop()
	close(t.stop)
}

// observer is what a monitor sees of AzDriverNodes.
func (w *world) observer(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	if w.options.Mutant != NoPatience && w.options.Mutant != PatienceWithoutEnd {
		return handler
	}
	changed := func(object any) any {
		if d, ok := object.(*apiv1.AzDriverNode); ok {
			d = d.DeepCopy()
			w.tamperPauses(d)
			return d
		}
		return object
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { handler.OnAdd(changed(object), false) },
		UpdateFunc: func(before, after any) { handler.OnUpdate(before, changed(after)) },
		DeleteFunc: handler.OnDelete,
	}
}

// tamperPauses changes what a controller reads of the announcements.
func (w *world) tamperPauses(d *apiv1.AzDriverNode) {
	switch w.options.Mutant {
	case NoPatience:
		d.Status.Maintenance = nil
	case PatienceWithoutEnd:
		if d.Status.Maintenance == nil {
			return
		}
		for i := range d.Status.Maintenance.Events {
			forever := int32(1 << 30)
			d.Status.Maintenance.Events[i].DurationSeconds = &forever
		}
	}
}

// pauseLimits are those of the controllers.
func (w *world) pauseLimits() nodehealth.PauseLimits {
	if w.options.Mutant == PatienceWithoutEnd {
		return nodehealth.PauseLimits{PerEvent: 1e6 * time.Hour, PerHour: 1e6 * time.Hour}
	}
	return nodehealth.PauseLimits{}
}
