package arm

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
)

// asyncHeaders adds the headers by which a client follows an operation.
func (s *Server) asyncHeaders(w http.ResponseWriter, c *call, out reply) {
	op := out.op
	query := "api-version=" + url.QueryEscape(c.URL.Query().Get("api-version"))
	accepted, _, _ := s.Latency.Pause(op.Kind)
	retryAfter(w.Header(), accepted)
	subscription := baseURL(c.Request) + "/subscriptions/" + op.Subscription
	if c.route.kind == "resourceGroups" {
		w.Header().Set("Location", subscription+"/operationresults/"+op.ID+"?"+query)
		return
	}
	status := subscription + "/providers/Microsoft.Compute/locations/" + op.Location + "/" + op.Route + "/" + op.ID
	if s.Latency.Profile().SignedURLs {
		query += signature(op)
	}
	w.Header().Set("Azure-AsyncOperation", status+"?"+query)
	w.Header().Set("Azure-AsyncNotification", "Enabled")
	if out.location {
		w.Header().Set("Location", status+"?monitor=true&"+query)
	}
	w.Header().Set("x-ms-request-id", op.ID)
}

// certificate has the length and the alphabet of the one in the URLs of Azure's operations.
var certificate = strings.Repeat("MIIHhzCCBm-gAwIBAgITHgc2XbqNhwF0", 103)

// signature are the members by which Azure recognizes the URL of an operation as its own.
func signature(op *operations.Operation) string {
	sum := sha256.Sum256([]byte(op.ID))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])
	return "&p=" + op.ID + "&t=" + strconv.FormatInt(op.Accepted.UnixNano()/100, 10) + "&c=" + certificate +
		"&s=" + strings.Repeat(hash, 8) + "&h=" + hash
}

// pollPause is how long an answer about an operation in progress asks to wait.
func (s *Server) pollPause(op *operations.Operation) time.Duration {
	_, first, later := s.Latency.Pause(op.Kind)
	if _, again := s.polled.LoadOrStore(op.ID, true); again {
		return later
	}
	return first
}

// retryAfter tells the client when to retry. Below a second there is only the millisecond header,
// which Azure's SDKs know.
func retryAfter(h http.Header, d time.Duration) {
	switch {
	case d >= time.Second:
		h.Set("Retry-After", strconv.Itoa(int(d/time.Second)))
	case d > 0:
		h.Set("retry-after-ms", strconv.Itoa(int(max(1, d/time.Millisecond))))
	}
}

// asyncStatus is the document behind Azure-AsyncOperation.
type asyncStatus struct {
	StartTime any    `json:"startTime"`
	EndTime   any    `json:"endTime,omitempty"`
	Status    string `json:"status"`
	Name      string `json:"name"`
	Error     any    `json:"error,omitempty"`
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
	if op.Done() {
		s.polled.Delete(op.ID)
	} else {
		retryAfter(header, s.pollPause(op))
	}
	if c.URL.Query().Get("monitor") == "true" || c.route.kind == "resourceGroups" {
		out, err := s.monitor(op)
		out.header = header
		if out.status == http.StatusAccepted {
			header.Set("Location", baseURL(c.Request)+c.URL.RequestURI())
		}
		return out, err
	}
	st := asyncStatus{
		StartTime: stamp(op.Accepted),
		Status:    "InProgress",
		Name:      op.ID,
	}
	if op.Done() {
		st.Status, st.EndTime = string(op.State), stamp(op.Ended)
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

// diskResult is what the document of a finished operation has of its result: of one of the disk
// provider, and of a POST that has a result; nil if nothing is there.
func (s *Server) diskResult(op *operations.Operation) (*asyncResult, error) {
	if op.Route != "DiskOperations" && op.Kind != "vm.disks" {
		return nil, nil
	}
	id, err := compute.Target(op)
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
	id, err := compute.Target(op)
	if err != nil {
		return reply{}, err
	}
	if id.Kind == "" {
		return reply{status: http.StatusOK}, nil
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
	case "linked.put":
		l, err := s.Cloud.Linked(id)
		if err != nil {
			return nil, err
		}
		return renderLinked(l), nil
	case "vmss.put":
		ss, err := s.Cloud.ScaleSet(id)
		if err != nil {
			return nil, err
		}
		return renderScaleSet(ss), nil
	}
	return nil, nil
}
