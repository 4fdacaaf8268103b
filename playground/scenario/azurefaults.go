package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// azureFault is a rule by which azuresim misbehaves, as its admin API takes it: what is
// not set matches everything.
type azureFault struct {
	Method     string `json:"method,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	For        string `json:"for"`
	RetryAfter string `json:"retryAfter,omitempty"`
}

// admin asks azuresim's admin API for something that has no answer of interest.
func (l *azureLog) admin(ctx context.Context, method, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	response, err := l.client.Do(request)
	if err != nil {
		return fmt.Errorf("tell azuresim %s %s: %w", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("tell azuresim %s %s: %s %s", method, path, response.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// refused counts the calls that were answered with that status, and those with 5xx if
// it is 500.
func refused(calls []azureCall, status int) int {
	n := 0
	for _, c := range calls {
		if c.Status == status || status == http.StatusInternalServerError && c.Status > status {
			n++
		}
	}
	return n
}
