package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
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

// breakAzure has azuresim misbehave by those rules, until each runs out or the scenario
// ends.
func (e *Environment) breakAzure(ctx context.Context, rules ...azureFault) error {
	e.mendLater("have azuresim behave again", func(ctx context.Context) error {
		return e.azure.admin(ctx, http.MethodDelete, "/admin/faults", nil)
	})
	var what []string
	for _, rule := range rules {
		if err := e.azure.admin(ctx, http.MethodPost, "/admin/faults", rule); err != nil {
			return err
		}
		what = append(what, fmt.Sprintf("%s %s: %d %s", rule.Method, rule.Kind, rule.Status, rule.Code))
	}
	e.say(timeline.Azure, "", "Azure refuses for "+rules[0].For, strings.Join(what, "; "))
	return nil
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
