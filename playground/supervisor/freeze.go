package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// startLimit is how much longer than its notice an announced event may take to start, because it
// was postponed.
const startLimit = time.Hour

// freezeNode reads the request of a freeze, as in ?for=6s&announce=15s.
func (s *Supervisor) freezeNode(r *http.Request) (state.Freeze, error) {
	node, err := s.plan.Node(r.PathValue("name"))
	if err != nil {
		return state.Freeze{}, err
	}
	length, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || length <= 0 {
		return state.Freeze{}, fmt.Errorf("freeze %s for %q: that is no positive duration", node.Name, r.URL.Query().Get("for"))
	}
	if notice := r.URL.Query().Get("announce"); notice != "" {
		before, err := time.ParseDuration(notice)
		if err != nil || before < 0 {
			return state.Freeze{}, fmt.Errorf("announce the freeze of %s %q before: that is no duration", node.Name, notice)
		}
		return s.freezeAnnounced(r.Context(), node, length, before)
	}
	return s.freeze(node, length)
}

// freezeAnnounced has Azure announce the freeze to the VM, and freezes the node when the event has
// started. Afterwards the event is gone.
func (s *Supervisor) freezeAnnounced(ctx context.Context, node topology.Node, length, notice time.Duration) (state.Freeze,
	error) {
	admin := s.azure.Admin()
	event, err := admin.Announce(ctx, "Freeze", node.VM(), notice, length)
	if err != nil {
		return state.Freeze{}, err
	}
	announced := time.Now()
	s.log.Info("freeze is announced", "node", node.Name, "event", event.ID, "notBefore", event.NotBefore)
	if err := admin.AwaitStart(ctx, event.ID, notice+startLimit); err != nil {
		// The caller may be gone, or the event.
		_ = admin.EndEvent(context.WithoutCancel(ctx), event.ID)
		return state.Freeze{}, fmt.Errorf("freeze %s: %w", node.Name, err)
	}
	freeze, err := s.freeze(node, length)
	freeze.Announced = announced
	return freeze, errors.Join(err, admin.EndEvent(context.WithoutCancel(ctx), event.ID))
}

// freeze pulls the cable of a running node and stops all of its processes, and lets both go on when
// the time is over, also if the caller is gone by then. A node that loses its power is not
// frozen any more.
func (s *Supervisor) freeze(node topology.Node, length time.Duration) (state.Freeze, error) {
	ended, err := s.beginFreeze(node)
	if err != nil {
		return state.Freeze{}, err
	}
	freeze := state.Freeze{Frozen: time.Now()}
	select {
	case <-time.After(length):
	case <-ended:
		freeze.Thawed = time.Now()
		return freeze, fmt.Errorf("%s has lost its power while it was frozen", node.Name)
	}
	err = s.endFreeze(node, ended)
	freeze.Thawed = time.Now()
	return freeze, err
}

// beginFreeze returns a channel that is closed if the node loses its power.
func (s *Supervisor) beginFreeze(node topology.Node) (ended chan struct{}, err error) {
	unlock := s.lock(node.Name)
	defer unlock()
	if !s.machines[node.Name].Running() {
		return nil, fmt.Errorf("%s is switched off", node.Name)
	}
	ended = make(chan struct{})
	if !s.setFrozen(node.Name, ended) {
		return nil, fmt.Errorf("%s is frozen already", node.Name)
	}
	// The cable first, and last at the end: the kernel, which does not stand still, must answer
	// nothing for the node.
	err = s.plug(node)
	if err == nil {
		err = s.cgroups.Freeze(node.Name)
	}
	if err != nil {
		s.forgetFrozen(node.Name)
		return nil, errors.Join(err, s.plug(node))
	}
	s.log.Info("node is frozen", "node", node.Name)
	return ended, nil
}

// endFreeze ends the freeze that the channel is of.
func (s *Supervisor) endFreeze(node topology.Node, ended chan struct{}) error {
	unlock := s.lock(node.Name)
	defer unlock()
	select {
	case <-ended:
		return fmt.Errorf("%s has lost its power while it was frozen", node.Name)
	default:
	}
	s.forgetFrozen(node.Name)
	err := errors.Join(s.cgroups.Thaw(node.Name), s.plug(node))
	s.log.Info("node goes on", "node", node.Name)
	return err
}

// setFrozen records that the node is frozen, unless it is.
func (s *Supervisor) setFrozen(name string, ended chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen[name] != nil {
		return false
	}
	s.frozen[name] = ended
	return true
}

// forgetFrozen records that the node is not frozen, and tells who waits for the end of its freeze.
func (s *Supervisor) forgetFrozen(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := s.frozen[name]; ended != nil {
		close(ended)
	}
	delete(s.frozen, name)
}
