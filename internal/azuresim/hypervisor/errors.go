package hypervisor

import "errors"

// The kinds of failure that the hypervisor tells apart; they survive the way over the socket, so
// that errors.Is works on both sides.
var (
	// ErrInvalid marks a request that can never succeed: a bad name, LUN or size.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound marks a disk that has no backing file.
	ErrNotFound = errors.New("not found")
	// ErrConflict marks a LUN that holds another disk, or a disk that is still attached.
	ErrConflict = errors.New("conflict")
	// ErrNoSpace marks a full file system, or a machine without a free loop device.
	ErrNoSpace = errors.New("no space")
	// ErrUnavailable marks a hypervisor process that does not answer; the client alone makes it.
	ErrUnavailable = errors.New("hypervisor unavailable")
	// ErrUnsupported marks a machine that cannot run the hypervisor; the message says what is
	// missing.
	ErrUnsupported = errors.New("machine cannot run the hypervisor")
)

// kinds gives each error kind its name on the wire.
var kinds = map[string]error{
	"Invalid":     ErrInvalid,
	"NotFound":    ErrNotFound,
	"Conflict":    ErrConflict,
	"NoSpace":     ErrNoSpace,
	"Unavailable": ErrUnavailable,
	"Unsupported": ErrUnsupported,
}

// kindOf is the wire name of err's kind, or "Internal".
func kindOf(err error) string {
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			return name
		}
	}
	return "Internal"
}
