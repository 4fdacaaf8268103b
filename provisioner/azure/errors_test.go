package azure

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

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func answer(status int, body string, headers ...string) error {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: &http.Request{Method: "POST", URL: &url.URL{}}}
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
		"no free data disk slot":                     {409, `{"error":{"code":"OperationNotAllowed","target":"dataDisks","message":"m"}}`, provisioner.InsufficientCapacity},
		"a disk that is being detached":              {409, `{"error":{"code":"AttachDiskWhileBeingDetached","message":"m"}}`, provisioner.Conflict},
		"a disk that is attached elsewhere":          {409, `{"error":{"code":"ConflictingUserInput","message":"m"}}`, provisioner.FailedPrecondition},
		"a LUN that is taken":                        {400, `{"error":{"code":"InvalidParameter","target":"dataDisk.lun","message":"m"}}`, provisioner.Conflict},
		"a scale-set instance that is gone":          {400, `{"error":{"code":"InvalidParameter","target":"instanceIds","message":"m"}}`, provisioner.NotFound},
		"the wrong zone":                             {400, `{"error":{"code":"BadRequest","message":"m"}}`, provisioner.InvalidArgument},
		"another bad parameter":                      {400, `{"error":{"code":"InvalidParameter","target":"disk.sku","message":"m"}}`, provisioner.InvalidArgument},
		"growing an attached disk":                   {409, `{"error":{"code":"OperationNotAllowed","message":"m"}}`, provisioner.FailedPrecondition},
		"a managed disk for a VM with blobs":         {409, `{"error":{"code":"OperationNotAllowed","target":"dataDisk","message":"m"}}`, provisioner.FailedPrecondition},
		"a concurrent request":                       {409, `{"error":{"code":"Conflict","message":"m"}}`, provisioner.Conflict},
		"a preempted operation":                      {200, `{"status":"Canceled","error":{"code":"OperationPreempted","message":"m"}}`, provisioner.Conflict},
		"an operation that a forced detach replaced": {200, `{"status":"Failed","error":{"code":"DataDisksForceDetached","message":"m"}}`, provisioner.Conflict},
		"a missing disk":                             {404, `{"error":{"code":"NotFound","message":"m"}}`, provisioner.NotFound},
		"a missing resource":                         {404, `{"error":{"code":"ResourceNotFound","message":"m"}}`, provisioner.NotFound},
		"a missing parent":                           {404, `{"error":{"code":"ParentResourceNotFound","message":"m"}}`, provisioner.NotFound},
		"a throttled compute call":                   {429, throttled, provisioner.RateLimited},
		"a throttled subscription":                   {429, `{"error":{"code":"SubscriptionRequestsThrottled","message":"m"}}`, provisioner.RateLimited},
		"429 without a word":                         {429, ``, provisioner.RateLimited},
		"a used-up quota":                            {409, `{"error":{"code":"QuotaExceeded","message":"m"}}`, provisioner.InsufficientCapacity},
		"a lock on the scope":                        {409, `{"error":{"code":"ScopeLocked","message":"m"}}`, provisioner.FailedPrecondition},
		"a refused identity":                         {403, `{"error":{"code":"AuthorizationFailed","message":"m"}}`, provisioner.Unauthorized},
		"a token that has expired":                   {401, `{"error":{"code":"ExpiredAuthenticationToken","message":"m"}}`, provisioner.Unauthorized},
		"an unknown 409":                             {409, `{"error":{"code":"SomethingNew","message":"m"}}`, provisioner.Conflict},
		"an unknown 400":                             {400, `{"error":{"code":"SomethingNew","message":"m"}}`, provisioner.InvalidArgument},
		"an internal error":                          {500, `{"error":{"code":"InternalServerError","message":"m"}}`, provisioner.Unavailable},
		"a gateway without a document":               {503, `<html/>`, provisioner.Unavailable},
		"an operation that failed in an unknown way": {200, `{"status":"Failed","error":{"code":"InternalExecutionError","message":"m"}}`, provisioner.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := translate(answer(test.status, test.body), time.Now(), "do it")
			if got := provisioner.KindOf(err); got != test.want {
				t.Errorf("%s, want %s (%v)", got, test.want, err)
			}
			var e *provisioner.Error
			if test.body != "" && test.body[0] == '{' && (!errors.As(err, &e) || e.Code == "" || !strings.Contains(e.Message, "m")) {
				t.Errorf("code or message is lost: %#v", e)
			}
		})
	}
}

func TestOtherErrorsKeepWhatTheyAre(t *testing.T) {
	if err := translate(context.Canceled, time.Now(), "do it"); !errors.Is(err, context.Canceled) || provisioner.KindOf(err) != "" {
		t.Errorf("a canceled context became %v", err)
	}
	if err := translate(provisioner.Errorf(provisioner.Conflict, "x"), time.Now(), "do it"); !errors.Is(err, provisioner.Conflict) {
		t.Errorf("a kind became %v", err)
	}
	if err := translate(io.ErrUnexpectedEOF, time.Now(), "do it"); !errors.Is(err, provisioner.Unavailable) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken connection became %v", err)
	}
	if err := translate(refusedToken{status: 401, code: "invalid_client"}, time.Now(), "do it"); !errors.Is(err, provisioner.Unauthorized) {
		t.Errorf("a refused token became %v", err)
	}
	if err := translate(answer(429, ``, "Retry-After", "7"), time.Now(), "do it"); provisioner.RetryAfter(err) != 7*time.Second {
		t.Errorf("the wait is lost: %v", provisioner.RetryAfter(err))
	}
}

func TestACancellationWithoutACodeIsAPreemption(t *testing.T) {
	err := answer(200, `{"status":"Canceled"}`)
	c := &Cloud{clock: realClock{}}
	got := c.outcome(t.Context(), kindAttach, "vm", stubPoller{err})
	if !errors.Is(got, provisioner.Conflict) || !wasPreempted(got) {
		t.Errorf("%v", got)
	}
}
