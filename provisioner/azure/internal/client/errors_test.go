package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	testclock "k8s.io/utils/clock/testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

func answer(status int, body string, headers ...string) error {
	r := &http.Response{
		StatusCode: status,
		Header:     http.Header{},
		Body:       io.NopCloser(strings.NewReader(body)),
		Request:    &http.Request{Method: "POST", URL: &url.URL{}},
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return runtime.NewResponseError(r)
}

func TestAnswersOfAzureBecomeKinds(t *testing.T) {
	throttled := `{"error":{"code":"OperationNotAllowed","message":"m","details":[{"code":"TooManyRequests","target":"HighCostGetVMScaleSet30Min","message":"{}"}]}}`
	for name, test := range map[string]struct {
		status int
		body   string
		want   provisioner.Kind
	}{
		"no free data disk slot": {409,
			`{"error":{"code":"OperationNotAllowed","target":"dataDisks","message":"m"}}`, provisioner.InsufficientCapacity},
		"a disk that is being detached": {409, `{"error":{"code":"AttachDiskWhileBeingDetached","message":"m"}}`,
			provisioner.Conflict},
		"a disk that is attached elsewhere": {409, `{"error":{"code":"ConflictingUserInput","message":"m"}}`,
			provisioner.FailedPrecondition},
		"a LUN that is taken": {400,
			`{"error":{"code":"InvalidParameter","target":"dataDisk.lun","message":"m"}}`, provisioner.Conflict},
		"a scale-set instance that is gone": {400,
			`{"error":{"code":"InvalidParameter","target":"instanceIds","message":"m"}}`, provisioner.NotFound},
		"a part that has a target of its own": {400,
			`{"error":{"code":"SomethingNew","target":"instanceIds","message":"m","details":[{"code":"InvalidParameter","target":"disk.sku"}]}}`, provisioner.InvalidArgument},
		"the wrong zone": {400, `{"error":{"code":"BadRequest","message":"m"}}`,
			provisioner.InvalidArgument},
		"another bad parameter": {400,
			`{"error":{"code":"InvalidParameter","target":"disk.sku","message":"m"}}`, provisioner.InvalidArgument},
		"growing an attached disk": {409, `{"error":{"code":"OperationNotAllowed","message":"m"}}`,
			provisioner.FailedPrecondition},
		"a managed disk for a VM with blobs": {409,
			`{"error":{"code":"OperationNotAllowed","target":"dataDisk","message":"m"}}`, provisioner.FailedPrecondition},
		"a concurrent request": {409, `{"error":{"code":"Conflict","message":"m"}}`, provisioner.Conflict},
		"a preempted operation": {200,
			`{"status":"Canceled","error":{"code":"OperationPreempted","message":"m"}}`, provisioner.Conflict},
		"an operation that a forced detach replaced": {200,
			`{"status":"Failed","error":{"code":"DataDisksForceDetached","message":"m"}}`, provisioner.Conflict},
		"a missing disk": {404, `{"error":{"code":"NotFound","message":"m"}}`, provisioner.NotFound},
		"a missing resource": {404, `{"error":{"code":"ResourceNotFound","message":"m"}}`,
			provisioner.NotFound},
		"a missing parent": {404, `{"error":{"code":"ParentResourceNotFound","message":"m"}}`,
			provisioner.NotFound},
		"a missing resource group": {404, `{"error":{"code":"ResourceGroupNotFound","message":"m"}}`,
			provisioner.NotFound},
		"a 404 with an unknown code": {404, `{"error":{"code":"SomethingNew","message":"m"}}`,
			provisioner.Unavailable},
		"a 404 about a detail": {404,
			`{"error":{"code":"SomethingNew","message":"m","details":[{"code":"NotFound"}]}}`, provisioner.Unavailable},
		"a 404 of a proxy": {404, `<html>not here</html>`, provisioner.Unavailable},
		"a 410 of a proxy": {410, ``, provisioner.Unavailable},
		"a subscription that is not visible": {404, `{"error":{"code":"SubscriptionNotFound","message":"m"}}`,
			provisioner.Unauthorized},
		"a throttled compute call": {429, throttled, provisioner.RateLimited},
		"a throttled subscription": {429, `{"error":{"code":"SubscriptionRequestsThrottled","message":"m"}}`,
			provisioner.RateLimited},
		"429 without a word": {429, ``, provisioner.RateLimited},
		"a used-up quota": {409, `{"error":{"code":"QuotaExceeded","message":"m"}}`,
			provisioner.InsufficientCapacity},
		"a lock on the scope": {409, `{"error":{"code":"ScopeLocked","message":"m"}}`,
			provisioner.FailedPrecondition},
		"a refused identity": {403, `{"error":{"code":"AuthorizationFailed","message":"m"}}`,
			provisioner.Unauthorized},
		"a token that has expired": {401, `{"error":{"code":"ExpiredAuthenticationToken","message":"m"}}`,
			provisioner.Unauthorized},
		"an unknown 409": {409, `{"error":{"code":"SomethingNew","message":"m"}}`,
			provisioner.Conflict},
		"an unknown 400": {400, `{"error":{"code":"SomethingNew","message":"m"}}`,
			provisioner.InvalidArgument},
		"an internal error": {500, `{"error":{"code":"InternalServerError","message":"m"}}`,
			provisioner.Unavailable},
		"a gateway without a document": {503, `<html/>`, provisioner.Unavailable},
		"an operation that failed in an unknown way": {200,
			`{"status":"Failed","error":{"code":"InternalExecutionError","message":"m"}}`, provisioner.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := testClient(time.Now()).Translate(answer(test.status, test.body), "do it")
			if got := provisioner.KindOf(err); got != test.want {
				t.Errorf("got %s, want %s (%v)", got, test.want, err)
			}
			if is := strings.Contains(test.body, "BeingDetached"); provisioner.StillDetaching(err) != is {
				t.Errorf("got StillDetaching %t, want %t", !is, is)
			}
			var e *provisioner.Error
			if test.body != "" && test.body[0] == '{' &&
				(!errors.As(err, &e) || e.Code == "" || !strings.Contains(e.Message, "m")) {
				t.Errorf("got %#v, want it with the code and the message", e)
			}
		})
	}
}

func TestErrorsHaveTheIDByWhichAzureKnowsTheRequest(t *testing.T) {
	const refusal = `{"error":{"code":"Conflict","message":"m"}}`
	for name, test := range map[string]struct {
		status  int
		body    string
		headers []string
		want    string
	}{
		"a refusal": {409, refusal, []string{"x-ms-correlation-request-id", "c-1", "x-ms-request-id", "r-1"},
			" (correlation ID c-1)"},
		"a refusal without a correlation ID": {409, refusal, []string{"x-ms-request-id", "r-1"}, " (request ID r-1)"},
		"an operation that failed": {200, `{"name":"op-1","status":"Failed","error":{"code":"Conflict","message":"m"}}`,
			[]string{"x-ms-correlation-request-id", "of-the-poll"}, " (operation ID op-1)"},
		"an operation without a name": {200, `{"status":"Failed","error":{"code":"Conflict","message":"m"}}`,
			[]string{"x-ms-correlation-request-id", "of-the-poll"}, " (correlation ID of-the-poll)"},
		"an answer without IDs":    {409, refusal, nil, ""},
		"a header that is no ID":   {409, refusal, []string{"x-ms-correlation-request-id", "<b> (x)"}, ""},
		"a refusal of a few words": {503, ``, []string{"x-ms-correlation-request-id", "c-1"}, " (correlation ID c-1)"},
	} {
		t.Run(name, func(t *testing.T) {
			err := testClient(time.Now()).Translate(answer(test.status, test.body, test.headers...), "do it")
			text, ids := provisioner.CutRequestIDs(err.Error())
			if ids != test.want || err.Error() != text+ids {
				t.Errorf("got %q, want it to end with %q", err, test.want)
			}
		})
	}
}

func TestOtherErrorsKeepTheirKind(t *testing.T) {
	c := testClient(time.Now())
	if err := c.Translate(context.Canceled, "do it"); !errors.Is(err, context.Canceled) || provisioner.KindOf(err) != "" {
		t.Errorf("a canceled context: got %v, want it without a kind", err)
	}
	if err := c.Translate(provisioner.Errorf(provisioner.Conflict, "x"), "do it"); !errors.Is(err, provisioner.Conflict) {
		t.Errorf("an error with a kind: got %v, want Conflict", err)
	}
	if err := c.Translate(io.ErrUnexpectedEOF, "do it"); !errors.Is(err, provisioner.Unavailable) ||
		!errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken connection: got %v, want Unavailable with the cause", err)
	}
	if err := c.Translate(answer(429, ``, "Retry-After", "7"), "do it"); provisioner.RetryAfter(err) != 7*time.Second {
		t.Errorf("Retry-After: got %v, want 7s", provisioner.RetryAfter(err))
	}
}

func TestACancellationWithoutACodeIsAPreemption(t *testing.T) {
	p := &poller{SDKPoller: endedPoller{err: answer(200, `{"status":"Canceled"}`)}, client: testClient(time.Now())}
	outcome, err := p.Outcome(t.Context())
	if err != nil || !errors.Is(outcome, provisioner.Conflict) || !operation.Preempted(outcome) {
		t.Errorf("got the outcome %v and the error %v, want a preemption", outcome, err)
	}
}

// endedPoller is an operation that has ended.
type endedPoller struct {
	SDKPoller
	err error
}

func (p endedPoller) result(context.Context) error { return p.err }

// testClient is a client without requests, whose clock stands still.
func testClient(now time.Time) *Client {
	return &Client{Clock: pacing.NewClock(testclock.NewFakeClock(now), nil)}
}
