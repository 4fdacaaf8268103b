package provisioner

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Kind is the kind of an error: the closed set that callers distinguish. It is an error itself, so
// that errors.Is(err, provisioner.NotFound) works.
type Kind string

// The error kinds.
const (
	// NotFound: the resource that the call is about does not exist.
	NotFound Kind = "NotFound"
	// AlreadyExists: a resource of that name exists and differs from the requested one.
	AlreadyExists Kind = "AlreadyExists"
	// Conflict: another operation on the same resource is in flight or took its
	// place; the same call may succeed later.
	Conflict Kind = "Conflict"
	// FailedPrecondition: the resource is in a state that forbids the call, and
	// waiting does not help: in use, attached elsewhere, or still attached.
	FailedPrecondition Kind = "FailedPrecondition"
	// InsufficientCapacity: no free slot, no free share, or no quota.
	InsufficientCapacity Kind = "InsufficientCapacity"
	// InvalidArgument: the platform will never take this request.
	InvalidArgument Kind = "InvalidArgument"
	// Unauthorized: the credentials do not allow it.
	Unauthorized Kind = "Unauthorized"
	// RateLimited: the platform asked to slow down; see RetryAfter.
	RateLimited Kind = "RateLimited"
	// Unavailable: the platform failed or could not be reached.
	Unavailable Kind = "Unavailable"
	// Unsupported: the resource does not have what the call needs. Another resource of the same
	// type may have it.
	Unsupported Kind = "Unsupported"
	// Unimplemented: the implementation does not have the method. It is older than the caller.
	Unimplemented Kind = "Unimplemented"
)

// Error makes a Kind usable as the target of errors.Is.
func (k Kind) Error() string { return string(k) }

// Fault is a state of the node that outlasts a call, and that a person or the end of a program ends.
// errors.Is finds it in an error, as it finds a Kind.
type Fault string

// The faults.
const (
	// DeviceHeld: a program, or the kernel for one, holds the device. The message names the holder.
	DeviceHeld Fault = "DeviceHeld"
	// MountBusy: a mount cannot be removed, because something is mounted below it, or a program uses
	// it.
	MountBusy Fault = "MountBusy"
	// FilesystemDamaged: the filesystem must be repaired manually.
	FilesystemDamaged Fault = "FilesystemDamaged"
)

// Error makes a Fault usable as the target of errors.Is.
func (f Fault) Error() string { return string(f) }

// Error is a failure of a call to the platform.
type Error struct {
	// Kind that callers decide by.
	Kind Kind
	// Message for people, with the platform's own code and words.
	Message string
	// Code is the platform's error code, as in "OperationNotAllowed"; for logs and metrics.
	Code string
	// StillDetaching says of an attach that the disk is on its way off the VM: it is being detached, or
	// its last detach has failed, and then only another detach helps.
	StillDetaching bool
	// RetryAfter is how long the platform asked to wait; 0 where it did not say.
	RetryAfter time.Duration
	// Fault of the node, if it has one.
	Fault Fault
	// Err is the cause, if there is one.
	Err error
}

// Errorf makes an Error of the given kind. %w is understood.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{
		Kind:    kind,
		Message: err.Error(),
		Err:     errors.Unwrap(err),
	}
}

// With sets the fault of a new Error, and returns it.
func (e *Error) With(fault Fault) *Error {
	e.Fault = fault
	return e
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is the kind or the fault of e.
func (e *Error) Is(target error) bool {
	switch target := target.(type) {
	case Kind:
		return e.Kind == target
	case Fault:
		return e.Fault == target
	}
	return false
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, or "" for an error that has none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if k, ok := errors.AsType[Kind](err); ok {
		return k
	}
	return ""
}

// CodeOf returns the platform's error code of err, or "" for an error that has none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// StillDetaching reports whether an attach has failed because the disk is on its way off the VM.
func StillDetaching(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.StillDetaching
}

// RetryAfter returns how long the platform asked to wait before the next call, or 0.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// requestID matches an ID as WithRequestID appends it.
var requestID = regexp.MustCompile(` \((?:correlation|operation|request) ID [0-9A-Za-z-]{1,64}\)`)

// The names of the IDs by which the platform's support finds a request.
const (
	CorrelationID = "correlation"
	OperationID   = "operation"
	RequestID     = "request"
)

// WithRequestID appends to a message the ID of the platform's answer, and what the ID is of: one of
// CorrelationID, OperationID and RequestID. What is not an ID is not appended.
func WithRequestID(message, of, id string) string {
	if appended := fmt.Sprintf(" (%s ID %s)", of, id); requestID.FindString(appended) == appended {
		return message + appended
	}
	return message
}

// CutRequestIDs separates a message from the IDs that WithRequestID has appended to it or to its
// parts. Two answers to repetitions of one request differ in the IDs: messages are compared without
// them.
func CutRequestIDs(message string) (text, ids string) {
	return requestID.ReplaceAllString(message, ""), strings.Join(requestID.FindAllString(message, -1), "")
}
