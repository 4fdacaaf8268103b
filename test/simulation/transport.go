package simulation

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// unanswered are the errors of a client of Kubernetes whose request got no answer, or none that
// says what became of it.
var unanswered = []error{
	failedRequest(errors.New("http2: client connection lost")),
	failedRequest(&net.OpError{
		Op:  "dial",
		Net: "tcp",
		Err: os.ErrDeadlineExceeded,
	}),
	failedRequest(errors.New("net/http: TLS handshake timeout")),
	failedRequest(&net.OpError{
		Op:  "dial",
		Net: "tcp",
		Err: syscall.ECONNREFUSED,
	}),
	failedRequest(&net.OpError{
		Op:  "read",
		Net: "tcp",
		Err: syscall.ECONNRESET,
	}),
	failedRequest(io.ErrUnexpectedEOF),
	apierrors.NewServerTimeout(schema.GroupResource{Resource: "azdrivernodes"}, "update", 1),
	apierrors.NewServiceUnavailable("etcd has no leader"),
	apierrors.NewInternalError(errors.New("etcdserver: request timed out")),
	apierrors.NewTooManyRequests("too many requests", 1),
}

func failedRequest(cause error) error {
	return &url.Error{
		Op:  "Put",
		URL: "https://10.0.0.1/apis/disk.csi.azure.com/v1",
		Err: cause,
	}
}

// unanswered is one of them.
func (w *world) unanswered() error { return unanswered[w.steps%len(unanswered)] }
