package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// FuzzRefusal translates any answer that refuses. It must become one of the kinds, with the
// answer's status, and carries the pause that Azure asks for.
func FuzzRefusal(f *testing.F) {
	for _, seed := range []struct {
		status           int
		retry, code, doc string
	}{
		{409, "", "OperationNotAllowed",
			`{"error":{"code":"OperationNotAllowed","target":"dataDisks","message":"The maximum number of data disks allowed to be attached to a VM of this size is 4."}}`},
		{429, "300", "", `{"error":{"code":"OperationNotAllowed","details":[{"code":"TooManyRequests","target":"HighCostGet","message":"{}"}]}}`},
		{404, "", "", `{"error":{"code":"ParentResourceNotFound"}}`},
		{403, "", "", `{"error":{"code":"LinkedAuthorizationFailed"}}`},
		{400, "", "", `{"code":"InvalidParameter","target":"instanceIds"}`}, {500, "Fri, 31 Dec 2027 23:59:59 GMT", "", ``},
		{200, "-1", "Conflict", `{"status":"Failed","error":{"code":"Conflict"}}`}, {502, "9999999999999999999", "", `<html>`},
		{409, "", "", `{"error":null}`}, {409, "", "", `{"error":[]}`}, {410, "1e9", "", `{"error":{"details":[null,{}]}}`},
		{502, "9227000000", "", "0"},
	} {
		f.Add(seed.status, seed.retry, seed.code, []byte(seed.doc))
	}
	kinds := map[provisioner.Kind]bool{}
	for _, k := range []provisioner.Kind{
		provisioner.NotFound, provisioner.AlreadyExists, provisioner.Conflict, provisioner.FailedPrecondition,
		provisioner.InsufficientCapacity,
		provisioner.InvalidArgument, provisioner.Unauthorized, provisioner.RateLimited, provisioner.Unavailable,
	} {
		kinds[k] = true
	}
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, retry, code string, body []byte) {
		header := http.Header{"Retry-After": {retry}, "X-Ms-Error-Code": {code}}
		request, err := http.NewRequest(http.MethodGet, "https://management.azure.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer := &http.Response{
			StatusCode: status,
			Status:     "?",
			Header:     header,
			Body:       io.NopCloser(strings.NewReader(string(body))),
			Request:    request,
		}
		translated := testClient(now).Translate(runtime.NewResponseError(answer), "try")
		var e *provisioner.Error
		if !errors.As(translated, &e) || !kinds[provisioner.KindOf(translated)] {
			t.Fatalf("%v is of the kind %q", translated, provisioner.KindOf(translated))
		}
		if e.RetryAfter < 0 || e.RetryAfter > longestSilence {
			t.Errorf("silence of %s", e.RetryAfter)
		}
		_ = translated.Error()
	})
}
