package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// verdict is what Azure said when it refused, without its words for people.
type verdict struct {
	// status of the HTTP answer; 200 for an operation that failed later.
	status int
	// code, target and the codes of the details of the error body.
	code, target string
	details      []string
}

// The codes that decide more than a kind.
const (
	codeConflictingUserInput   = "ConflictingUserInput"
	codeOperationPreempted     = "OperationPreempted"
	codeDataDisksForceDetached = "DataDisksForceDetached"
)

// kindOf maps a verdict to a kind. Where a code can mean several things, callers read the truth as well.
func kindOf(v verdict) provisioner.Kind {
	for _, code := range append([]string{v.code}, v.details...) {
		if k, ok := kindOfCode(code, v.target); ok {
			return k
		}
	}
	switch {
	case v.status == http.StatusUnauthorized || v.status == http.StatusForbidden:
		return provisioner.Unauthorized
	case v.status == http.StatusNotFound || v.status == http.StatusGone:
		return provisioner.NotFound
	case v.status == http.StatusTooManyRequests:
		return provisioner.RateLimited
	case v.code == "OperationNotAllowed":
		return provisioner.FailedPrecondition
	case v.status == http.StatusConflict || v.status == http.StatusPreconditionFailed:
		return provisioner.Conflict
	case v.status == http.StatusRequestTimeout || v.status >= 500:
		return provisioner.Unavailable
	case v.status >= 400:
		return provisioner.InvalidArgument
	}
	return provisioner.Unavailable
}

// kindOfCode maps the codes whose meaning does not depend on the HTTP status. Targets count where
// Azure uses one code for several faults.
func kindOfCode(code, target string) (provisioner.Kind, bool) {
	under := func(prefix string) bool { return strings.HasPrefix(strings.ToLower(target), prefix) }
	switch code {
	case "TooManyRequests", "SubscriptionRequestsThrottled", "OperationThrottled":
		return provisioner.RateLimited, true
	case "OperationNotAllowed":
		if target == "dataDisks" {
			return provisioner.InsufficientCapacity, true
		}
	case "QuotaExceeded", "ResourceQuotaExceeded", "SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest":
		return provisioner.InsufficientCapacity, true
	case "AttachDiskWhileBeingDetached", "Conflict", codeOperationPreempted, codeDataDisksForceDetached, "AnotherOperationInProgress",
		"OperationPreemptedByAnotherOperation", "RetryableError":
		return provisioner.Conflict, true
	case codeConflictingUserInput, "ScopeLocked", "DiskInUse":
		return provisioner.FailedPrecondition, true
	case "NotFound", "ResourceNotFound", "ParentResourceNotFound", "ResourceGroupNotFound", "SubscriptionNotFound":
		return provisioner.NotFound, true
	case "InvalidParameter":
		switch {
		case under("instanceids"):
			return provisioner.NotFound, true // no such scale-set instance
		case under("datadisk.lun"):
			return provisioner.Conflict, true // the LUN was taken meanwhile
		}
		return provisioner.InvalidArgument, true
	case "BadRequest", "InvalidRequestFormat", "RequestDisallowedByPolicy", "PropertyChangeNotAllowed", "InvalidResourceType":
		return provisioner.InvalidArgument, true
	case "AuthorizationFailed", "LinkedAuthorizationFailed", "InvalidAuthenticationToken", "ExpiredAuthenticationToken":
		return provisioner.Unauthorized, true
	}
	return "", false
}

// translate makes an error of the SDK one of the kinds, with what was being done in front. Errors of
// a context and errors that are translated already keep what they are.
func translate(err error, now time.Time, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(doing, args...)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || provisioner.KindOf(err) != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	var refused *azcore.ResponseError
	if errors.As(err, &refused) {
		return fromResponse(refused, now, what)
	}
	kind := provisioner.Unavailable
	var failed *azidentity.AuthenticationFailedError
	if errors.As(err, &failed) && failed.RawResponse != nil && failed.RawResponse.StatusCode < 500 {
		kind = provisioner.Unauthorized
	}
	if errors.As(err, &noIdentity{}) {
		kind = provisioner.Unauthorized
	}
	var noToken refusedToken
	if errors.As(err, &noToken) && noToken.status < 500 {
		kind = provisioner.Unauthorized
	}
	return &provisioner.Error{Kind: kind, Message: what + ": " + err.Error(), Err: err}
}

func fromResponse(refused *azcore.ResponseError, now time.Time, what string) *provisioner.Error {
	v, message := read(refused)
	e := &provisioner.Error{Kind: kindOf(v), Code: v.code, Err: refused}
	if refused.RawResponse != nil {
		e.RetryAfter = retryAfter(refused.RawResponse.Header, now)
	}
	if message == "" {
		message = http.StatusText(v.status)
	}
	e.Message = fmt.Sprintf("%s: Azure answered %d %s: %s", what, v.status, v.code, message)
	return e
}

// read takes the verdict, and the words for people, out of an answer.
func read(refused *azcore.ResponseError) (verdict, string) {
	v := verdict{status: refused.StatusCode, code: refused.ErrorCode}
	if refused.RawResponse == nil || refused.RawResponse.Body == nil {
		return v, ""
	}
	payload, err := runtime.Payload(refused.RawResponse)
	if err != nil {
		return v, ""
	}
	type body struct {
		Target, Message string
		Details         []struct{ Code string }
	}
	var parsed struct {
		body
		Error *body
	}
	if json.Unmarshal(payload, &parsed) != nil {
		return v, ""
	}
	if parsed.Error != nil {
		parsed.body = *parsed.Error
	}
	v.target = parsed.Target
	for _, d := range parsed.Details {
		v.details = append(v.details, d.Code)
	}
	return v, parsed.Message
}

// codeOf is Azure's code in an error of this package.
func codeOf(err error) string {
	var e *provisioner.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// wasPreempted says that an operation did not fail but was replaced: by a newer one, or by nobody knows what,
// which shows as a cancellation without a code.
func wasPreempted(err error) bool {
	var e *provisioner.Error
	if !errors.As(err, &e) || e.Kind != provisioner.Conflict {
		return false
	}
	return e.Code == codeOperationPreempted || e.Code == codeDataDisksForceDetached || e.Code == codeCanceled
}
