package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

var (
	errNoPod   = badRequest{errors.New("the request has no Pod")}
	errNoNodes = badRequest{errors.New("the request has neither Nodes nor NodeNames")}
)

// readArgs reads the arguments. Fields that it does not know are passed over, because the scheduler
// may be newer.
func (w *workspace) readArgs(r *http.Request) (*extenderv1.ExtenderArgs, error) {
	w.body.Reset()
	if _, err := w.body.ReadFrom(r.Body); err != nil {
		return nil, badRequest{fmt.Errorf("read the arguments: %w", err)}
	}
	args, err := w.parseArgs(w.body.Bytes())
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

// parseArgs parses the arguments. Names at their end, where the scheduler writes them, are parsed
// by endingNames.
func (w *workspace) parseArgs(body []byte) (*extenderv1.ExtenderArgs, error) {
	text, args := io.Reader(bytes.NewReader(body)), &extenderv1.ExtenderArgs{}
	names, begin := endingNames(body, w.names[:0])
	if len(names) > 0 {
		w.names = names
		text = io.MultiReader(bytes.NewReader(body[:begin]), strings.NewReader(withoutNames))
	}
	parser := json.NewDecoder(text)
	if err := parser.Decode(args); err != nil {
		return nil, badRequest{fmt.Errorf("read the arguments: %w", err)}
	}
	if _, err := parser.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest{errors.Join(errors.New("the request has something after the arguments"), err)}
	}
	if len(names) > 0 {
		args.NodeNames = &names
	}
	return args, nil
}

const (
	// namesBegin is how the list of names begins, and namesEnd how it ends if it is the last of the
	// arguments. withoutNames is the end of arguments without it.
	namesBegin, namesEnd, withoutNames = `"NodeNames":[`, `"]}`, `null}`
)

// endingNames finds the list of names in a body that ends with it and with the brace that closes
// the arguments, and adds them to names. begin is where the list begins. For any other body it
// returns no names. encoding/json takes milliseconds for 5,000 names, most of the time of a
// request.
//
// It is exact: the last byte of a correct body closes the arguments, so a list right before it is a
// field of the arguments itself. A body is correct with the list exactly if it is with null in its
// place.
func endingNames(body []byte, names []string) (_ []string, begin int) {
	begin = bytes.Index(body, []byte(namesBegin)) + len(namesBegin)
	if begin < len(namesBegin) || !bytes.HasSuffix(body, []byte(namesEnd)) {
		return nil, 0
	}
	list := string(body[begin : len(body)-len(`]}`)])
	for {
		if list == "" || list[0] != '"' {
			return nil, 0
		}
		// Names need not be unquoted if they have only characters that names of nodes may have.
		end := 1
		for end < len(list) && inNames[list[end]] {
			end++
		}
		if end == len(list) || list[end] != '"' {
			return nil, 0
		}
		names = append(names, list[1:end])
		switch list = list[end+1:]; {
		case list == "":
			return names, begin - len(`[`)
		case list[0] != ',':
			return nil, 0
		}
		list = list[1:]
	}
}

// inNames are the characters in names of nodes.
var inNames = func() (is [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyz0123456789-.") {
		is[c] = true
	}
	return is
}()
