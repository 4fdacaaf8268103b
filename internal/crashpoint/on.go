//go:build crashpoints

package crashpoint

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"syscall"
)

// killed is the exit code that shells and container runtimes report for a process that was killed
// by SIGKILL.
const killed = 128 + int(syscall.SIGKILL)

var points = struct {
	sync.Mutex
	armed  map[string]bool
	passed map[string]int
	order  []string
}{armed: map[string]bool{}, passed: map[string]int{}}

// Passed is a point that the process has reached.
type Passed struct {
	Point string `json:"point"`
	Times int    `json:"times"`
}

// State is the response of GET /crash. Passed is in the order in which the points were first
// reached.
type State struct {
	Armed  []string `json:"armed"`
	Passed []Passed `json:"passed"`
}

// At is a point at which the process dies without cleaning up, if the point is armed.
func At(point string) {
	points.Lock()
	if points.passed[point]++; points.passed[point] == 1 {
		points.order = append(points.order, point)
	}
	armed := points.armed[point]
	if armed {
		// The lock remains held, so that no other goroutine passes another point.
		die()
	}
	points.Unlock()
}

// die ends the process as SIGKILL does. The first process of a container ignores signals from
// inside the container, also SIGKILL; it ends by the system call exit_group, which also runs no
// further code of this program.
func die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	syscall.Exit(killed)
}

// Handlers returns the handlers by which points are armed, by path.
func Handlers() map[string]http.Handler {
	return map[string]http.Handler{"/crash": http.HandlerFunc(serve)}
}

func serve(w http.ResponseWriter, r *http.Request) {
	switch point := r.URL.Query().Get("point"); {
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(state())
	case r.Method == http.MethodPost && point != "":
		points.Lock()
		points.armed[point] = true
		points.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
		http.Error(w, "the parameter point is missing", http.StatusBadRequest)
	case r.Method == http.MethodDelete:
		points.Lock()
		clear(points.armed)
		points.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "GET, POST or DELETE", http.StatusMethodNotAllowed)
	}
}

func state() State {
	points.Lock()
	defer points.Unlock()
	s := State{Armed: slices.Sorted(maps.Keys(points.armed)), Passed: []Passed{}}
	for _, point := range points.order {
		s.Passed = append(s.Passed, Passed{Point: point, Times: points.passed[point]})
	}
	return s
}
