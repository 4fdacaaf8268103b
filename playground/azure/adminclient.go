package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// adminTimeout bounds a call that has an end.
const adminTimeout = time.Minute

// Admin is a client of azuresim's admin API.
type Admin struct {
	// URL is that of azuresim, without a path.
	URL    string
	Client *http.Client
}

// Call sends a request, with in as JSON unless it is nil, and reads the answer into out unless that
// is nil.
func (a Admin) Call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	answer, err := a.Open(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("read azuresim's answer to %s %s: %w", method, path, err)
	}
	return nil
}

// Reservation is the persistent reservation of a disk, as the admin API shows it.
type Reservation struct {
	// ID is the resource ID of the disk.
	ID string `json:"id"`
	// Holder is the VM that holds the reservation, or "".
	Holder        string `json:"holder"`
	Registrations []struct {
		VM  string `json:"vm"`
		Key string `json:"key"`
	} `json:"registrations"`
}

// None reports whether nothing is left on the disk that could refuse a write.
func (r Reservation) None() bool { return r.Holder == "" && len(r.Registrations) == 0 }

// Reservation returns the reservation of the disk with that resource ID, or one that is None.
func (a Admin) Reservation(ctx context.Context, disk string) (Reservation, error) {
	var all []Reservation
	if err := a.Call(ctx, http.MethodGet, "/admin/reservations", nil, &all); err != nil {
		return Reservation{}, err
	}
	for _, r := range all {
		if strings.EqualFold(r.ID, disk) {
			return r, nil
		}
	}
	return Reservation{ID: disk}, nil
}

// Open sends a request and returns the body of the answer, which the caller closes. It fails unless
// the answer is a success.
func (a Admin) Open(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return nil, fmt.Errorf("encode the request %s %s to azuresim: %w", method, path, err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.URL+path, &body)
	if err != nil {
		return nil, err
	}
	response, err := a.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask azuresim: %w", err)
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("ask azuresim %s %s: %s %s", method, path, response.Status, strings.TrimSpace(string(text)))
	}
	return response.Body, nil
}
