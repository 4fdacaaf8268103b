package client

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
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// refusal is an answer of Azure that refuses a request, without its message.
type refusal struct {
	// status of the HTTP answer; 200 for an operation that failed later.
	status int
	// code and target of the error body, and of its details.
	code, target string
	details      []detail
}

// detail is a part of a refusal. It has a target of its own: the target of the whole says nothing
// about a part.
type detail struct{ Code, Target string }

// kindOf maps a refusal to a kind. Where a code has several meanings, callers also read the
// resources.
//
// NotFound proves that a disk, a snapshot or a VM does not exist: a VM cannot write, an AzVolume
// may be removed. Therefore only the codes by which Azure's resource providers and Resource Manager
// report this become NotFound. A 404 or 410 without such a code does not: a proxy may have
// answered. Nor does SubscriptionNotFound, which credentials of another tenant get as well.
func kindOf(v refusal) provisioner.Kind {
	for i, d := range append([]detail{{v.code, v.target}}, v.details...) {
		// A detail may be about another resource than the requested one.
		if k, ok := kindOfCode(d.Code, d.Target); ok && (i == 0 || k != provisioner.NotFound) {
			return k
		}
	}
	switch {
	case v.status == http.StatusUnauthorized || v.status == http.StatusForbidden:
		return provisioner.Unauthorized
	case v.status == http.StatusNotFound || v.status == http.StatusGone:
		return provisioner.Unavailable // of a proxy, or of an error that this driver does not know
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

// beingDetached is the code of an attach of a disk that is being detached, or whose last detach has
// failed.
const beingDetached = "AttachDiskWhileBeingDetached"

// denied is the code of a call that a deny assignment forbids
// (https://learn.microsoft.com/azure/role-based-access-control/deny-assignments).
const denied = "DenyAssignmentAuthorizationFailed"

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
	case "QuotaExceeded", "ResourceQuotaExceeded", "SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed",
		"OverconstrainedAllocationRequest":
		return provisioner.InsufficientCapacity, true
	case beingDetached, "Conflict", operation.CodeOperationPreempted, operation.CodeDataDisksForceDetached,
		"AnotherOperationInProgress",
		"OperationPreemptedByAnotherOperation", "RetryableError":
		return provisioner.Conflict, true
	case operation.CodeConflictingUserInput, "ScopeLocked", "DiskInUse":
		return provisioner.FailedPrecondition, true
	case "NotFound", "ResourceNotFound", "ParentResourceNotFound", "ResourceGroupNotFound":
		return provisioner.NotFound, true
	case "InvalidParameter":
		switch {
		case under("instanceids"):
			return provisioner.NotFound, true // the scale set has no such instance
		case under("datadisk.lun"):
			return provisioner.Conflict, true // another disk has taken the LUN
		}
		return provisioner.InvalidArgument, true
	case "BadRequest", "InvalidRequestFormat", "RequestDisallowedByPolicy", "PropertyChangeNotAllowed", "InvalidResourceType":
		return provisioner.InvalidArgument, true
	case "AuthorizationFailed", "LinkedAuthorizationFailed", denied, "InvalidAuthenticationToken", "ExpiredAuthenticationToken",
		"SubscriptionNotFound":
		return provisioner.Unauthorized, true
	}
	return "", false
}

// Translate makes an error of the SDK one of the kinds, with what was being done in front. An error
// of a context, and an error that has a kind already, keep what they are.
func (c *Client) Translate(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(doing, args...)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || provisioner.KindOf(err) != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return fromResponse(refused, c.Clock.Now(), what)
	}
	kind := provisioner.Unavailable
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok && failed.RawResponse != nil &&
		failed.RawResponse.StatusCode < 500 {
		kind = provisioner.Unauthorized
	}
	return &provisioner.Error{
		Kind:    kind,
		Message: what + ": " + err.Error(),
		Err:     err,
	}
}

func fromResponse(refused *azcore.ResponseError, now time.Time, what string) *provisioner.Error {
	v, message := read(refused)
	e := &provisioner.Error{
		Kind: kindOf(v),
		Code: v.code,
		// https://github.com/kubernetes/kubernetes/issues/78657 has Azure's words.
		StillDetaching: v.code == beingDetached,
		Err:            refused,
	}
	if refused.RawResponse != nil {
		e.RetryAfter = retryAfter(refused.RawResponse.Header, now)
	}
	if message == "" {
		message = http.StatusText(v.status)
	}
	if v.code == denied {
		// In front, because Azure's own message is long, and records and events are cut.
		message = "AKS puts such a deny assignment on the node resource group with node resource group lockdown, " +
			"which AKS Automatic always has: this driver cannot attach disks there (docs/limitations.md#aks). " + message
	}
	e.Message = fmt.Sprintf("%s: Azure answered %d %s: %s", what, v.status, v.code, message)
	if strings.Contains(strings.ToLower(message), notEnabled) {
		e.Message += " See docs/limitations.md#azure."
	}
	e.Message = withID(e.Message, refused)
	return e
}

// withID appends the ID by which Microsoft's support finds the request: of an operation that failed
// after Azure had accepted it, the operation's own, because each poll has a correlation ID of its
// own.
func withID(message string, refused *azcore.ResponseError) string {
	answer := refused.RawResponse
	if answer == nil {
		return message
	}
	if refused.StatusCode < http.StatusBadRequest {
		if name := stateOf(answer).Name; name != "" {
			return provisioner.WithRequestID(message, provisioner.OperationID, name)
		}
	}
	if id := answer.Header.Get("x-ms-correlation-request-id"); id != "" {
		return provisioner.WithRequestID(message, provisioner.CorrelationID, id)
	}
	return provisioner.WithRequestID(message, provisioner.RequestID, answer.Header.Get("x-ms-request-id"))
}

// notEnabled is in the messages with which Azure refuses attachDetachDataDisks where it is not
// enabled. The code of these refusals is not known.
const notEnabled = "attach detach data disks api"

// NotEnabled reports whether an error of the SDK looks like the refusal of attachDetachDataDisks where
// it is not enabled. Only a text says so, which decides nothing by itself.
func NotEnabled(err error) bool {
	refused, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return false
	}
	_, message := read(refused)
	return strings.Contains(strings.ToLower(message), notEnabled)
}

// read takes the refusal and its message out of an answer.
func read(refused *azcore.ResponseError) (refusal, string) {
	v := refusal{status: refused.StatusCode, code: refused.ErrorCode}
	if refused.RawResponse == nil || refused.RawResponse.Body == nil {
		return v, ""
	}
	payload, err := runtime.Payload(refused.RawResponse)
	if err != nil {
		return v, ""
	}
	type body struct {
		Target, Message string
		Details         []detail
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
	v.target, v.details = parsed.Target, parsed.Details
	return v, parsed.Message
}
