package contract

import (
	"bytes"
	"io"
	"net/http"
)

// Transport sends requests, and reports each exchange that contradicts the description. It is a
// policy.Transporter of the SDK, and an http.RoundTripper. It may be used concurrently.
type Transport struct {
	// Send sends a request.
	Send        func(*http.Request) (*http.Response, error)
	Description *Description
	// Report is called with each fault.
	Report func(fault string)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) { return t.Do(r) }

// Do sends a request.
func (t *Transport) Do(r *http.Request) (*http.Response, error) {
	var request []byte
	if r.Body != nil {
		var err error
		if request, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(request))
	}
	resp, err := t.Send(r)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	for _, fault := range t.Description.Check(Exchange{
		Method:  r.Method,
		URL:     r.URL,
		Request: request,
		Status:  resp.StatusCode,
		Header:  resp.Header,
		Answer:  answer,
	}) {
		t.Report(fault)
	}
	return resp, nil
}
