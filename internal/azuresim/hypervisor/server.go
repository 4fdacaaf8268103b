package hypervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"
)

// maxRequestBytes bounds what the server reads of a request.
const maxRequestBytes = 64 << 10

// Handler serves the protocol of NewClient.
func (h *Hypervisor) Handler() http.Handler {
	mux := http.NewServeMux()
	for name, method := range h.methods() {
		mux.HandleFunc("POST /v1/"+name, func(w http.ResponseWriter, r *http.Request) {
			var in request
			decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&in); err != nil {
				h.answer(w, nil, fmt.Errorf("%w: parse request: %w", ErrInvalid, err))
				return
			}
			// If the caller ends, for instance a front end that is killed, the step is still
			// completed.
			out, err := method(context.WithoutCancel(r.Context()), in)
			h.answer(w, out, err)
		})
	}
	return mux
}

func (h *Hypervisor) answer(w http.ResponseWriter, out any, err error) {
	status := http.StatusOK
	if err != nil {
		out, status = failure{Kind: kindOf(err), Message: err.Error()}, statusOf(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(out); err != nil {
		h.logger.Debug("cannot send the response: the caller closed the connection", "error", err)
	}
}

// statusOf is for people who use the socket manually; the client reads the kind.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrConflict):
		return http.StatusConflict
	case errors.Is(err, ErrNoSpace):
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// Listen makes the socket, for root alone. A socket that an earlier process left is replaced, which
// is right only for the holder of the state directory.
func Listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove stale socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen on socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket: %w", err), listener.Close())
	}
	return listener, nil
}

// Serve answers requests until ctx ends, and then lets those in progress end.
func (h *Hypervisor) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: h.Handler(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return fmt.Errorf("wait for requests: %w", err)
	}
	return nil
}
