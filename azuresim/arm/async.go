package arm

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/azuresim/operations"
)

// asyncHeaders adds the headers by which a client follows an operation.
func (s *Server) asyncHeaders(w http.ResponseWriter, c *call, out reply) {
	op := out.op
	status := baseURL(c.Request) + "/subscriptions/" + op.Subscription + "/providers/Microsoft.Compute/locations/" + op.Location +
		"/" + op.Route + "/" + op.ID
	version := "api-version=" + url.QueryEscape(c.URL.Query().Get("api-version"))
	w.Header().Set("Azure-AsyncOperation", status+"?"+version)
	if out.location {
		w.Header().Set("Location", status+"?monitor=true&"+version)
	}
	s.retryAfter(w.Header(), op.Kind == "disk.create")
}

// retryAfter tells the client when to retry. Below a second there is only the millisecond header,
// which Azure's SDKs know.
func (s *Server) retryAfter(h http.Header, creation bool) {
	d := s.Latency.RetryAfter(creation)
	switch {
	case d >= time.Second:
		h.Set("Retry-After", strconv.Itoa(int(d/time.Second)))
	case d > 0:
		h.Set("retry-after-ms", strconv.Itoa(int(max(1, d/time.Millisecond))))
	}
}

// asyncStatus is the document behind Azure-AsyncOperation.
type asyncStatus struct {
	StartTime time.Time  `json:"startTime"`
	EndTime   *time.Time `json:"endTime,omitempty"`
	Status    string     `json:"status"`
	Name      string     `json:"name"`
	Error     any        `json:"error,omitempty"`
	// Properties has the result of an operation of the disk provider.
	Properties *asyncResult `json:"properties,omitempty"`
}

type asyncResult struct {
	Output any `json:"output"`
}

func (s *Server) getOperation(c *call) (reply, error) {
	op, err := s.Cloud.Operation(c.params["operation"])
	if err != nil {
		return reply{}, err
	}
	if op == nil {
		return reply{}, armerror.New(404, "NotFound", "The operation '%s' could not be found.", c.params["operation"])
	}
	header := http.Header{}
	if !op.Done() {
		s.retryAfter(header, false)
	}
	if c.URL.Query().Get("monitor") == "true" {
		out, err := s.monitor(op)
		out.header = header
		if out.status == http.StatusAccepted {
			header.Set("Location", baseURL(c.Request)+c.URL.RequestURI())
		}
		return out, err
	}
	st := asyncStatus{
		StartTime: op.Accepted.UTC(),
		Status:    "InProgress",
		Name:      op.ID,
	}
	if op.Done() {
		ended := op.Ended.UTC()
		st.Status, st.EndTime = string(op.State), &ended
		if op.Error != nil {
			st.Error = op.Error.Body()
		} else if st.Properties, err = s.diskResult(op); err != nil {
			return reply{}, err
		}
	}
	return reply{
		status: http.StatusOK,
		body:   st,
		header: header,
	}, nil
}

// diskResult is what the disk provider says that a finished operation made, nil if nothing is
// there.
func (s *Server) diskResult(op *operations.Operation) (*asyncResult, error) {
	if !strings.HasPrefix(op.Kind, "disk.") && !strings.HasPrefix(op.Kind, "snapshot.") {
		return nil, nil
	}
	id, err := compute.ParseID(op.Target, "target")
	if err != nil {
		return nil, err
	}
	body, err := s.resultOf(op, id)
	if err != nil || body == nil {
		return nil, nil // the resource has gone since
	}
	return &asyncResult{Output: body}, nil
}

// monitor is what the Location URL answers: 202 while the operation is in flight, then its result.
func (s *Server) monitor(op *operations.Operation) (reply, error) {
	if !op.Done() {
		return reply{status: http.StatusAccepted}, nil
	}
	if op.Error != nil {
		return reply{}, op.Error
	}
	id, err := compute.ParseID(op.Target, "target")
	if err != nil {
		return reply{}, err
	}
	body, err := s.resultOf(op, id)
	if err != nil || body == nil {
		return reply{status: http.StatusNoContent}, nil // the resource has gone since
	}
	return reply{status: http.StatusOK, body: body}, nil
}

// resultOf renders what a finished operation was about, nil if it has no result.
func (s *Server) resultOf(op *operations.Operation, id compute.ID) (any, error) {
	switch op.Kind {
	case "vm.disks":
		vm, err := s.Cloud.VM(id)
		if err != nil {
			return nil, err
		}
		return renderStorage(vm), nil
	case "disk.create", "disk.update":
		d, err := s.Cloud.Disk(id)
		if err != nil {
			return nil, err
		}
		return renderDisk(d), nil
	case "snapshot.create", "snapshot.update":
		sn, err := s.Cloud.Snapshot(id)
		if err != nil {
			return nil, err
		}
		return renderSnapshot(sn), nil
	case "vm.create", "vm.update":
		vm, err := s.Cloud.VM(id)
		if err != nil {
			return nil, err
		}
		return renderVM(vm, false), nil
	case "vmss.put":
		ss, err := s.Cloud.ScaleSet(id)
		if err != nil {
			return nil, err
		}
		return renderScaleSet(ss), nil
	}
	return nil, nil
}
