package admin

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

const eventBuffer = 256

// Events passes power and network changes of VMs on to its listeners. The zero value is ready. A
// listener that does not keep up is disconnected, so that it knows to look at the present state.
type Events struct {
	mu        sync.Mutex
	listeners map[chan compute.Event]bool
}

// Send passes an event on; it never blocks.
func (e *Events) Send(ev compute.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ch := range e.listeners {
		select {
		case ch <- ev:
		default:
			delete(e.listeners, ch)
			close(ch)
		}
	}
}

func (e *Events) listen() (ch chan compute.Event, stop func()) {
	ch = make(chan compute.Event, eventBuffer)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listeners == nil {
		e.listeners = map[chan compute.Event]bool{}
	}
	e.listeners[ch] = true
	return ch, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.listeners, ch)
	}
}

// stream writes one JSON object a line for each event from now on.
func (e *Events) stream(w http.ResponseWriter, r *http.Request) {
	ch, stop := e.listen()
	defer stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	if out.Flush() != nil {
		return
	}
	enc := json.NewEncoder(w)
	for {
		select {
		case ev, ok := <-ch:
			if !ok || enc.Encode(ev) != nil || out.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
