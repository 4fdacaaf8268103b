package scheduler

import (
	"bytes"
	"encoding/json"
	"sync"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
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

// beforeNames and noNames are how the JSON of a result begins that has neither nodes nor their
// names.
const beforeNames, noNames = `{"Nodes":null,"NodeNames":`, `null,`

// writeResult writes the answer to filter. Names that are plain need no escapes; they are written
// without encoding/json, which takes several times as long.
func (w *workspace) writeResult(result *extenderv1.ExtenderFilterResult, plain bool) error {
	if !plain {
		return w.write(result)
	}
	rest := *result
	rest.NodeNames = nil
	text, err := json.Marshal(&rest)
	if err != nil {
		return err
	}
	after, found := bytes.CutPrefix(text, []byte(beforeNames+noNames))
	if !found {
		return w.write(result)
	}
	w.answer.Reset()
	w.answer.WriteString(beforeNames)
	separator := byte('[')
	for _, name := range *result.NodeNames {
		w.answer.WriteByte(separator)
		w.answer.WriteByte('"')
		w.answer.WriteString(name)
		w.answer.WriteByte('"')
		separator = ','
	}
	if separator == '[' {
		w.answer.WriteByte(separator)
	}
	w.answer.WriteString("],")
	w.answer.Write(after)
	return w.answer.WriteByte('\n')
}
