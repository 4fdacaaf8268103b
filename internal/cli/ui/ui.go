// Package ui serves a page that shows nodes, volumes, what moves, what is stuck and the last
// failovers, and keeps it up to date. It reads, and changes nothing, except by the commands that its
// caller gives it for nodes.
//
// The requests that it answers:
//
//	GET /                   the page
//	GET /overview           explain.Overview as JSON, of the query namespace= and name=
//	GET /events             the same as server-sent events, each time that it changes
//	GET /why                a report as text, of the query kind=, namespace= and name=
//	GET /actions            the names of the commands as JSON
//	POST /actions           runs the command of the query action= for the node of node=
//
// The page and its files are the same in each cluster. Each other request needs the token of the server, as the query
// token=, and each request needs a Host that is a loopback address: pages of other origins, and other users of the
// machine, learn nothing of the cluster. The page keeps the token in its session storage, which belongs to the origin
// with its port. A cookie would not do: a browser sends it to every port of the host, and so to the programs of others.
package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

//go:embed page
var embedded embed.FS

// An event of one page comes pause after the one before, or rests times as long as that took to make:
// a page on a large cluster takes a fifth of a processor at most, and shows a change later.
const (
	pause = 200 * time.Millisecond
	rests = 4
)

// Source has the records.
type Source interface {
	// Records are those as they are now.
	Records() explain.Records
	// Changed receives after a change.
	Changed() <-chan struct{}
}

// Action is a command for a node.
type Action struct {
	// Name is on its button.
	Name string
	// Run returns when it is done. It may be called concurrently.
	Run func(ctx context.Context, node string) error
}

// ActionList is the document of the commands.
type ActionList struct {
	explain.Document
	Items []NodeAction `json:"items"`
}

// NodeAction is a command in the list.
type NodeAction struct {
	Name string `json:"name"`
}

// Options of a Server.
type Options struct {
	Source Source
	// Why answers a question.
	Why func(ctx context.Context, subject explain.Subject) (explain.Report, error)
	// Actions are offered for each node.
	Actions []Action
	Clock   clock.Clock
}

// Server answers the page's requests.
type Server struct {
	Options
	token   string
	handler http.Handler

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// New makes a Server.
func New(o Options) *Server {
	s := &Server{Options: o, token: rand.Text(), changed: make(chan struct{})}
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // of a constant
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /overview", s.withToken(s.overview))
	mux.HandleFunc("GET /events", s.withToken(s.events))
	mux.HandleFunc("GET /why", s.withToken(s.why))
	mux.HandleFunc("GET /actions", s.withToken(s.actions))
	mux.HandleFunc("POST /actions", s.withToken(s.act))
	s.handler = http.NewCrossOriginProtection().Handler(guarded(mux))
	return s
}

// URL is that of the page, with the token.
func (s *Server) URL(address net.Addr) string {
	return "http://" + address.String() + "/?token=" + s.token
}

// refresh is how long a page is shown that nothing has changed.
const refresh = 15 * time.Second

// Run passes changes on until ctx ends.
func (s *Server) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Source.Changed():
		case <-s.Clock.After(refresh): // a leader that has died changes nothing
		}
		s.mu.Lock()
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
}

func (s *Server) nextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// guarded answers requests that name this machine, and tells the browser what the page may do.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) {
			http.Error(w, "Host is not a loopback address", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// withToken answers requests with the token.
func (s *Server) withToken(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("token")), []byte(s.token)) != 1 {
			http.Error(w, "open the URL that kubectl azuredisk ui prints: the token is missing, or is of another run",
				http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// loopback reports whether a Host is an address of this machine, so that a name of another site that
// resolves to it is refused.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

func selection(r *http.Request) explain.Selection {
	return explain.Selection{Namespace: r.URL.Query().Get("namespace"), Name: r.URL.Query().Get("name")}
}

func (s *Server) encoded(selected explain.Selection) ([]byte, error) {
	data, err := json.Marshal(explain.NewOverview(s.Source.Records(), selected))
	return []byte(printable.Text(string(data))), err
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	data, err := s.encoded(selection(r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control, selected := http.NewResponseController(w), selection(r)
	for {
		began, next := s.Clock.Now(), s.nextChange() // before the records are read, so that no change is missed
		data, err := s.encoded(selected)
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", data)
		}
		if err == nil {
			err = control.Flush()
		}
		if err != nil {
			return
		}
		rest := s.Clock.After(max(pause, rests*s.Clock.Since(began)))
		if !received(r.Context(), rest) || !received(r.Context(), next) {
			return
		}
	}
}

// received waits for a channel. It returns false if ctx ends before.
func received[T any](ctx context.Context, from <-chan T) bool {
	select {
	case <-ctx.Done():
		return false
	case <-from:
		return true
	}
}

func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	report, err := s.Why(r.Context(), explain.Subject{
		Kind:      explain.Kind(q.Get("kind")),
		Namespace: q.Get("namespace"),
		Name:      q.Get("name"),
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(printable.Writer(w), report.Text())
}

func (s *Server) actions(w http.ResponseWriter, _ *http.Request) {
	list := ActionList{Document: explain.NewDocument("ActionList", s.Source.Records().Now, nil), Items: []NodeAction{}}
	for _, a := range s.Actions {
		list.Items = append(list.Items, NodeAction{a.Name})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	node := r.URL.Query().Get("node")
	i := slices.IndexFunc(s.Actions, func(a Action) bool { return a.Name == r.URL.Query().Get("action") })
	known := slices.ContainsFunc(s.Source.Records().Nodes, func(n *corev1.Node) bool { return n.Name == node })
	if i < 0 || !known {
		http.Error(w, "there is no such action, or no such node", http.StatusNotFound)
		return
	}
	if err := s.Actions[i].Run(r.Context(), node); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}
