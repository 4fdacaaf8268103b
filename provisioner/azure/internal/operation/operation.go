// Package operation follows the long-running operations of Azure to their end: it decides when to
// poll, keeps one poller for each operation, and writes the tokens by which another process resumes
// it. It reaches Azure through Poller, and does no I/O itself.
package operation

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Kind is the kind of a long-running operation.
type Kind string

// The kinds of operations.
const (
	CreateDisk     Kind = "CreateDisk"
	UpdateDisk     Kind = "UpdateDisk"
	DeleteDisk     Kind = "DeleteDisk"
	CreateSnapshot Kind = "CreateSnapshot"
	DeleteSnapshot Kind = "DeleteSnapshot"
	Attach         Kind = "Attach"
	Detach         Kind = "Detach"
	ForceDetach    Kind = "ForceDetach"
)

// The provisioning states of a resource.
const (
	StateSucceeded = "Succeeded"
	StateCreating  = "Creating"
	StateUpdating  = "Updating"
	StateDeleting  = "Deleting"
	StateFailed    = "Failed"
)

// Codes of errors that decide more than the kind of the error does.
const (
	CodeConflictingUserInput   = "ConflictingUserInput"
	CodeOperationPreempted     = "OperationPreempted"
	CodeDataDisksForceDetached = "DataDisksForceDetached"
	// CodeCanceled stands for an operation that Azure ended as canceled without a code.
	CodeCanceled = "Canceled"
	// CodeForgotten stands for an operation whose outcome Azure does not know any more.
	CodeForgotten = "OperationForgotten"
)

// Key is a resource ID in the form in which IDs are compared.
func Key(id string) string { return strings.ToLower(strings.TrimSuffix(id, "/")) }

// CodeOf is Azure's code in an error; "" if it has none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*provisioner.Error](err); ok {
		return e.Code
	}
	return ""
}

// Preempted reports whether an operation did not fail, but that another one took its place. An
// unknown one shows as a cancellation without a code.
func Preempted(err error) bool {
	if provisioner.KindOf(err) != provisioner.Conflict {
		return false
	}
	switch CodeOf(err) {
	case CodeOperationPreempted, CodeDataDisksForceDetached, CodeCanceled:
		return true
	}
	return false
}

// Transient reports whether a request failed for a reason that passes, and says nothing about the
// resource.
func Transient(err error) bool {
	k := provisioner.KindOf(err)
	return k == provisioner.RateLimited || k == provisioner.Unavailable
}

// Token is what another process needs to resume an operation.
type Token struct {
	Version int  `json:"v"`
	Kind    Kind `json:"k"`
	// ID of the disk, snapshot or VM that the operation is on.
	ID string `json:"id"`
	// SDK is the token of the SDK's poller; "" for an operation that is followed by reading the
	// resource.
	SDK string `json:"t,omitempty"`
	// DiskID and Shared describe an attachment.
	DiskID string `json:"disk,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	// ByList says that an attachment is an update of the VM's list of data disks.
	ByList bool `json:"list,omitempty"`
	// Together is how many disks were in the batch of an attachment.
	Together int `json:"n,omitempty"`
}

const tokenVersion = 1

// Text is the token as it is stored.
func (t Token) Text() string {
	t.Version = tokenVersion
	return Compact(t)
}

// Compact writes strings, numbers and maps of them as JSON. It does not escape the ampersands of
// URLs, as json.Marshal does.
func Compact(v any) string {
	var text strings.Builder
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		panic(err) // such values can always be written
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// ParseToken reads a token, which must be of one of the kinds.
func ParseToken(text string, kinds ...Kind) (Token, error) {
	var t Token
	if err := json.Unmarshal([]byte(text), &t); err != nil || t.Version != tokenVersion {
		return t, provisioner.Errorf(provisioner.InvalidArgument, "resume an operation: %q is not the token of an operation",
			text)
	}
	if slices.Contains(kinds, t.Kind) {
		return t, nil
	}
	return t, provisioner.Errorf(provisioner.InvalidArgument, "resume an operation: its token is of the kind %q, want one of %q",
		t.Kind, kinds)
}

// Ended is an operation that had nothing to do. It implements provisioner.Operation.
type Ended struct{}

// Token returns "".
func (Ended) Token() string { return "" }

// Wait returns the context's error.
func (Ended) Wait(ctx context.Context) error { return ctx.Err() }
