package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

var (
	errNoPod   = badRequest{errors.New("the request has no Pod")}
	errNoNodes = badRequest{errors.New("the request has neither Nodes nor NodeNames")}
)

// bodies are buffers for the bodies of requests and answers.
var bodies = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// readArgs reads the arguments. Fields that it does not know are passed over, because the scheduler may be newer.
func readArgs(r *http.Request) (*extenderv1.ExtenderArgs, error) {
	body := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(body) // no argument refers to it
	body.Reset()
	if _, err := body.ReadFrom(r.Body); err != nil {
		return nil, badRequest{fmt.Errorf("read the arguments: %w", err)}
	}
	args, err := parseArgs(body.Bytes())
	switch {
	case err != nil:
		return nil, err
	case args.Pod == nil:
		return nil, errNoPod
	case args.Nodes == nil && args.NodeNames == nil:
		return nil, errNoNodes
	}
	return args, nil
}

// parseArgs parses the arguments. Names at their end, where the scheduler writes them, are parsed by endingNames.
func parseArgs(body []byte) (*extenderv1.ExtenderArgs, error) {
	names, rest := endingNames(body)
	var args extenderv1.ExtenderArgs
	parser := json.NewDecoder(bytes.NewReader(rest))
	if err := parser.Decode(&args); err != nil {
		return nil, badRequest{fmt.Errorf("read the arguments: %w", err)}
	}
	if _, err := parser.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest{errors.Join(errors.New("the request has something after the arguments"), err)}
	}
	if names != nil {
		args.NodeNames = &names
	}
	return &args, nil
}

// namesBegin is how the list of names begins.
const namesBegin = `"NodeNames":[`

// endingNames takes the list of names out of a body that ends with it and with the brace that closes the arguments, and writes null in its place. names is nil
// for any other body. encoding/json takes milliseconds for 5,000 names, most of the time of a request.
//
// It is exact: the last byte of a correct body closes the arguments, so a list right before it is a field of the arguments
// itself. A body is correct with the list exactly if it is with null in its place.
func endingNames(body []byte) (names []string, rest []byte) {
	begin := bytes.Index(body, []byte(namesBegin)) + len(namesBegin)
	if begin < len(namesBegin) || !bytes.HasSuffix(body, []byte(`"]}`)) {
		return nil, body
	}
	// Names do not need to be unquoted if they have no character but those of the names of nodes.
	list := string(body[begin : len(body)-len(`]}`)])
	for list != "" {
		if list[0] != '"' {
			return nil, body
		}
		end := strings.IndexByte(list[1:], '"') + 1
		if end == 0 || !isPlain(list[1:end]) {
			return nil, body
		}
		if names == nil {
			names = make([]string, 0, len(list)/(end+2)+1)
		}
		names = append(names, list[1:end])
		if list = list[end+1:]; list == "" {
			break
		}
		if list[0] != ',' || len(list) == 1 {
			return nil, body
		}
		list = list[1:]
	}
	return names, append(body[:begin-len(`[`)], `null}`...)
}

func isPlain(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
