package imds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

const (
	eventsVersion = "2020-07-01"
	eventsPath    = "/metadata/scheduledevents"
)

// Events reads the scheduled events of this VM and of the VMs beside it. It keeps its connection, so
// that a read every second costs little. The first read at a VM can take up to two minutes, and
// then fails. It is for one caller at a time.
type Events struct {
	// Endpoint of the instance metadata service.
	Endpoint string
	client   *http.Client
}

// Read returns the present document.
func (e *Events) Read(ctx context.Context) (maintenance.Document, error) {
	if e.client == nil {
		e.client = &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConns: 1, IdleConnTimeout: time.Minute}}
	}
	body, err := get(ctx, e.client, e.Endpoint, eventsPath, url.Values{"api-version": {eventsVersion}})
	if err != nil {
		return maintenance.Document{}, err
	}
	return parseEvents(body)
}

// parseEvents reads the document. One without a list of events is no document.
func parseEvents(body []byte) (maintenance.Document, error) {
	var document *maintenance.Document
	if err := json.Unmarshal(body, &document); err != nil {
		return maintenance.Document{}, fmt.Errorf("parse scheduled events: %w", err)
	}
	if document == nil || document.Events == nil {
		return maintenance.Document{}, fmt.Errorf("parse scheduled events: there is no list of events in %.200q", body)
	}
	return *document, nil
}
