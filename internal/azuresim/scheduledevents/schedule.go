package scheduledevents

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// documents are the documents by the key of the VMs that share them.
var documents = store.Table[Document]{Name: "scheduledEvents"}

// Tables are the tables that a Schedule needs in its store.
var Tables = []string{documents.Name}

// Scopes says which VMs share their events; compute.Cloud does.
type Scopes interface {
	// EventScope returns the scope of the VM of that name on the data plane.
	EventScope(vm string) (compute.EventScope, error)
}

// Schedule is the events of all VMs. Its methods may be called concurrently. They fail with
// ErrUnknown for an event that is not there.
type Schedule struct {
	Store  *store.Store // opened with Tables
	Clock  clock.PassiveClock
	Scopes Scopes
}

// Of returns the document that is delivered to a VM.
func (s *Schedule) Of(vm string) (Document, error) {
	scope, err := s.Scopes.EventScope(vm)
	if err != nil {
		return Document{}, err
	}
	var d Document
	err = s.Store.View(func(tx *store.Tx) error {
		d, err = s.read(tx, scope.Key)
		return err
	})
	return d, err
}

// All returns the events of all VMs.
func (s *Schedule) All() ([]Event, error) {
	list := []Event{}
	err := s.Store.View(func(tx *store.Tx) error {
		records, err := documents.All(tx, "")
		for _, r := range records {
			list = append(list, r.Value.At(s.Clock.Now()).Events...)
		}
		return err
	})
	return list, err
}

// Create makes an event and returns it.
func (s *Schedule) Create(r Request) (Event, error) {
	var scope compute.EventScope
	var names []string
	for _, vm := range r.VMs {
		of, err := s.Scopes.EventScope(vm)
		if err != nil {
			return Event{}, err
		}
		if len(names) > 0 && of.Key != scope.Key {
			return Event{}, fmt.Errorf("vms: %s and %s do not share their events", names[0], of.Name)
		}
		scope, names = of, append(names, of.Name)
	}
	if len(names) == 0 {
		return Event{}, errors.New("vms: the name of a VM is required")
	}
	e, err := r.event(names, scope.TerminateNotice, s.Clock.Now())
	if err != nil {
		return Event{}, err
	}
	e.ID = uuid.NewString()
	err = s.Store.Update(func(tx *store.Tx) error {
		d, err := s.read(tx, scope.Key)
		if err != nil {
			return err
		}
		d.add(e)
		return documents.Put(tx, scope.Key, &d)
	})
	return e, err
}

// Approve lets events of the VM's document start before their time.
func (s *Schedule) Approve(vm string, ids []string) error {
	scope, err := s.Scopes.EventScope(vm)
	if err != nil {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		d, err := s.read(tx, scope.Key)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := d.approve(id, s.Clock.Now().UTC()); err != nil {
				return err
			}
		}
		return documents.Put(tx, scope.Key, &d)
	})
}

// Start starts an event now.
func (s *Schedule) Start(id string) error {
	return s.change(id, func(d *Document) error { d.start(id, s.Clock.Now().UTC()); return nil })
}

// Postpone has an event start that much later than now.
func (s *Schedule) Postpone(id string, notice time.Duration) error {
	return s.change(id, func(d *Document) error { return d.postpone(id, s.Clock.Now().Add(notice)) })
}

// Remove cancels an event that has not started, and ends one that has.
func (s *Schedule) Remove(id string) error {
	return s.change(id, func(d *Document) error { d.remove(id); return nil })
}

// change changes the document that has the event.
func (s *Schedule) change(id string, do func(*Document) error) error {
	return s.Store.Update(func(tx *store.Tx) error {
		records, err := documents.All(tx, "")
		if err != nil {
			return err
		}
		for _, r := range records {
			d := r.Value.At(s.Clock.Now())
			if d.index(id) < 0 {
				continue
			}
			if err := do(&d); err != nil {
				return err
			}
			return documents.Put(tx, r.Key, &d)
		}
		return fmt.Errorf("find event %s: %w", id, ErrUnknown)
	})
}

func (s *Schedule) read(tx *store.Tx, key string) (Document, error) {
	d, err := documents.Get(tx, key)
	if err != nil {
		return Document{}, err
	}
	if d == nil {
		return empty(), nil
	}
	return d.At(s.Clock.Now()), nil
}
