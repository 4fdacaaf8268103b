// Package steps runs the steps of the tests of a playground, and reports them: those of the
// playground itself (selftest), of Kubernetes' volumes (lifecycle) and of the guides (migration).
package steps

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Step is something that has to hold, and how to check it.
type Step struct {
	// Name is the sentence that holds if Run returns nil.
	Name string
	Run  func(context.Context) error
}

// Result is the outcome of a step.
type Result struct {
	Topic   string  `json:"topic"`
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
	// Error says why it failed.
	Error string `json:"error,omitempty"`
}

// Report has the outcome of all steps. Steps may run at the same time.
type Report struct {
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Passed  int       `json:"passed"`
	Failed  int       `json:"failed"`
	Tests   []Result  `json:"tests"`

	mu    sync.Mutex
	limit time.Duration
	print func(format string, args ...any)
}

// NewReport makes a report of steps that take limit at most each. print receives a line for each
// step that has ended.
func NewReport(limit time.Duration, print func(format string, args ...any)) *Report {
	return &Report{
		Started: time.Now(),
		limit:   limit,
		print:   print,
	}
}

// Run runs steps one after the other, up to the first that fails. It returns whether all passed.
func (r *Report) Run(ctx context.Context, topic string, steps ...Step) bool {
	for _, s := range steps {
		if !r.one(ctx, topic, s) {
			return false
		}
	}
	return true
}

func (r *Report) one(ctx context.Context, topic string, s Step) bool {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	start := time.Now()
	err := s.Run(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	result := Result{
		Topic:   topic,
		Name:    s.Name,
		Passed:  err == nil,
		Seconds: time.Since(start).Seconds(),
	}
	if err != nil {
		result.Error = err.Error()
		r.Failed++
		r.print("FAIL %6.1f s  %s: %s\n             %s", result.Seconds, topic, s.Name, err)
	} else {
		r.Passed++
		r.print("ok   %6.1f s  %s: %s", result.Seconds, topic, s.Name)
	}
	r.Tests = append(r.Tests, result)
	r.Seconds = time.Since(r.Started).Seconds()
	return err == nil
}

// Write writes the report to a file of that name in the folder, and returns its path.
func (r *Report) Write(dir, name string) (string, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, append(data, '\n'), 0o644)
}
