// Package armerror is the error that Azure Resource Manager puts into a response body: an HTTP
// status, a code that clients classify by, a message for people, and optionally a target and
// details. Every layer of azuresim that refuses something on Azure's behalf returns one; the HTTP
// front end writes it, and the operation engine stores it as the outcome of a long-running
// operation.
package armerror

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is one refusal. Code and Message are what Azure would say.
type Error struct {
	Status     int           `json:"status"`
	Code       string        `json:"code"`
	Message    string        `json:"message"`
	Target     string        `json:"target,omitempty"`
	Details    []Detail      `json:"details,omitempty"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"` // 0: no Retry-After header
}

// Detail is an entry of the details list of an error body.
type Detail struct {
	Code    string `json:"code"`
	Target  string `json:"target,omitempty"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message) }

// Body is the JSON form of an error.
type Body struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Target  string   `json:"target,omitempty"`
	Details []Detail `json:"details,omitempty"`
}

// Body returns the error without its envelope, as in an operation's status.
func (e *Error) Body() Body { return Body{e.Code, e.Message, e.Target, e.Details} }

// Document returns the response body that carries the error.
func (e *Error) Document() any { return map[string]Body{"error": e.Body()} }

// WithTarget sets the target and returns e.
func (e *Error) WithTarget(target string) *Error {
	e.Target = target
	return e
}

// New makes an error of any status.
func New(status int, code, format string, args ...any) *Error {
	return &Error{
		Status:  status,
		Code:    code,
		Message: fmt.Sprintf(format, args...),
	}
}

// BadRequest makes a 400.
func BadRequest(code, format string, args ...any) *Error {
	return New(http.StatusBadRequest, code, format, args...)
}

// InvalidParameter makes the 400 that names a parameter.
func InvalidParameter(target, format string, args ...any) *Error {
	return New(http.StatusBadRequest, "InvalidParameter", format, args...).WithTarget(target)
}

// NotAllowed makes the 409 with which Azure refuses what the state of a resource does not permit.
func NotAllowed(format string, args ...any) *Error {
	return New(http.StatusConflict, "OperationNotAllowed", format, args...)
}

// Conflict makes the 409 for another request in flight on the same resource.
func Conflict() *Error {
	return New(http.StatusConflict, "Conflict",
		"The request failed due to conflict with a concurrent request. please refer to https://aka.ms/activitylog to get more details on the conflicting requests.")
}

// From returns err as an Error: itself if it is or wraps one, otherwise a 500.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(http.StatusInternalServerError, "InternalServerError", "%s", err)
}
