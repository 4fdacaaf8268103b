package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// AzureFault is a rule for azuresim's faults, as its admin API takes it: a field that is
// not set matches everything.
type AzureFault struct {
	Method     string `json:"method,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	For        string `json:"for"`
	RetryAfter string `json:"retryAfter,omitempty"`
}

// Admin sends a request to azuresim's admin API and ignores the body of the answer.
func (l *AzureLog) Admin(ctx context.Context, method, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, l.URL+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	response, err := l.Client.Do(request)
	if err != nil {
		return fmt.Errorf("ask azuresim %s %s: %w", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("ask azuresim %s %s: %s %s", method, path, response.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// Refused counts the calls that were answered with that status, and those with 5xx if
// it is 500.
func Refused(calls []AzureCall, status int) int {
	n := 0
	for _, c := range calls {
		if c.Status == status || status == http.StatusInternalServerError && c.Status > status {
			n++
		}
	}
	return n
}
