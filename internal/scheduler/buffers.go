package scheduler

import (
	"bytes"
	"encoding/json"
	"sync"
)

// workspace is memory for one request, which later requests use again. Otherwise each request about
// thousands of nodes would leave so much garbage that one request in a hundred would run beside the
// garbage collector.
type workspace struct {
	body, answer bytes.Buffer
	names        []string
}

var workspaces = sync.Pool{New: func() any { return &workspace{} }}

// write writes an answer.
func (w *workspace) write(value any) error {
	w.answer.Reset()
	return json.NewEncoder(&w.answer).Encode(value)
}
