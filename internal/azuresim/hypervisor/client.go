package hypervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/dataplane"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// Client talks to a hypervisor process. Its errors are of the same kinds as the Hypervisor's;
// ErrUnavailable if the process does not answer, which leaves open whether the step was done:
// repeat it.
type Client struct {
	http *http.Client
}

var _ dataplane.DataPlane = (*Client)(nil)

// NewClient returns a client for the socket. It connects when it is used, so the process may come
// and go.
func NewClient(socket string) *Client {
	dialer := net.Dialer{}
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 64,
	}}}
}

func (c *Client) call(ctx context.Context, method string, in request) (response, error) {
	var out response
	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("encode %s request: %w", method, err)
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://hypervisor/v1/"+method, bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("make %s request: %w", method, err)
	}
	answer, err := c.http.Do(call)
	if err != nil {
		return out, fmt.Errorf("%w: %s: %w", ErrUnavailable, method, err)
	}
	defer answer.Body.Close()
	decoder := json.NewDecoder(answer.Body)
	if answer.StatusCode != http.StatusOK {
		var failed failure
		if err := decoder.Decode(&failed); err != nil {
			return out, fmt.Errorf("%w: %s: status %s", ErrUnavailable, method, answer.Status)
		}
		return out, &remoteError{kind: kinds[failed.Kind], message: failed.Message}
	}
	if err := decoder.Decode(&out); err != nil {
		return out, fmt.Errorf("%w: parse %s answer: %w", ErrUnavailable, method, err)
	}
	return out, nil
}

// remoteError is an error of the process with its kind; its message names the kind already.
type remoteError struct {
	kind    error // nil for one without a kind
	message string
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.kind }

// CreateDisk calls Hypervisor.CreateDisk.
func (c *Client) CreateDisk(ctx context.Context, diskUID string, sizeBytes int64, source string) error {
	_, err := c.call(ctx, "createDisk", request{
		DiskUID:   diskUID,
		SizeBytes: sizeBytes,
		Source:    source,
	})
	return err
}

// ResizeDisk calls Hypervisor.ResizeDisk.
func (c *Client) ResizeDisk(ctx context.Context, diskUID string, sizeBytes int64) error {
	_, err := c.call(ctx, "resizeDisk", request{DiskUID: diskUID, SizeBytes: sizeBytes})
	return err
}

// DeleteDisk calls Hypervisor.DeleteDisk.
func (c *Client) DeleteDisk(ctx context.Context, diskUID string) error {
	_, err := c.call(ctx, "deleteDisk", request{DiskUID: diskUID})
	return err
}

// Attach calls Hypervisor.Attach.
func (c *Client) Attach(ctx context.Context, vm string, lun int, diskUID string) error {
	_, err := c.call(ctx, "attach", request{
		VM:      vm,
		LUN:     lun,
		DiskUID: diskUID,
	})
	return err
}

// Detach calls Hypervisor.Detach.
func (c *Client) Detach(ctx context.Context, vm string, lun int, diskUID string) error {
	_, err := c.call(ctx, "detach", request{
		VM:      vm,
		LUN:     lun,
		DiskUID: diskUID,
	})
	return err
}

// PowerOff calls Hypervisor.PowerOff.
func (c *Client) PowerOff(ctx context.Context, vm string) error {
	_, err := c.call(ctx, "powerOff", request{VM: vm})
	return err
}

// PowerOn calls Hypervisor.PowerOn.
func (c *Client) PowerOn(ctx context.Context, vm string) error {
	_, err := c.call(ctx, "powerOn", request{VM: vm})
	return err
}

// EnsureVM calls Hypervisor.EnsureVM.
func (c *Client) EnsureVM(ctx context.Context, vm string) error {
	_, err := c.call(ctx, "ensureVM", request{VM: vm})
	return err
}

// LoseReservations calls Hypervisor.LoseReservations.
func (c *Client) LoseReservations(ctx context.Context, vm, diskUID string) error {
	_, err := c.call(ctx, "loseReservations", request{VM: vm, DiskUID: diskUID})
	return err
}

// RemoveVM calls Hypervisor.RemoveVM.
func (c *Client) RemoveVM(ctx context.Context, vm string) error {
	_, err := c.call(ctx, "removeVM", request{VM: vm})
	return err
}

// SetFaults calls Hypervisor.SetFaults.
func (c *Client) SetFaults(ctx context.Context, vm string, faults Faults) error {
	_, err := c.call(ctx, "setFaults", request{VM: vm, Faults: faults})
	return err
}

// List calls Hypervisor.List.
func (c *Client) List(ctx context.Context) ([]dataplane.Attachment, error) {
	out, err := c.call(ctx, "list", request{})
	return out.Attachments, err
}

// ListDisks calls Hypervisor.ListDisks.
func (c *Client) ListDisks(ctx context.Context) ([]string, error) {
	out, err := c.call(ctx, "listDisks", request{})
	return out.Disks, err
}

// SetShared calls Hypervisor.SetShared.
func (c *Client) SetShared(ctx context.Context, diskUID string, shared bool) error {
	_, err := c.call(ctx, "setShared", request{DiskUID: diskUID, Shared: shared})
	return err
}

// Execute calls Hypervisor.Execute.
func (c *Client) Execute(ctx context.Context, device string, cdb, out []byte) (reservations.Answer, error) {
	answered, err := c.call(ctx, "execute", request{
		Device: device,
		CDB:    cdb,
		Out:    out,
	})
	return answered.Answer, err
}

// ListReservations calls Hypervisor.ListReservations.
func (c *Client) ListReservations(ctx context.Context) (map[string]reservations.State, error) {
	out, err := c.call(ctx, "listReservations", request{})
	return out.Reservations, err
}
