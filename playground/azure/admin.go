package azure

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/poll"
)

// VM is a VM as azuresim's admin API shows it.
type VM struct {
	Name       string `json:"vm"`
	Power      string `json:"power"`
	PowerCut   bool   `json:"powerCut"`
	NetworkCut bool   `json:"networkCut"`
}

// On reports whether the VM should run. settled is false while it is between states;
// then its machine is left as it is.
func (v VM) On() (on, settled bool) {
	switch {
	case v.PowerCut:
		return false, true
	case v.Power == "running":
		return true, true
	case v.Power == "stopped", v.Power == "deallocated":
		return false, true
	}
	return false, false
}

// CutPower cuts a VM's power: when it returns, every access of the VM to its disks fails.
func (a *Azure) CutPower(ctx context.Context, vm string) error {
	return a.admin(ctx, http.MethodPost, "/admin/vms/"+url.PathEscape(vm)+"/power-cut", nil)
}

// RestorePower gives a VM its power and its disks back.
func (a *Azure) RestorePower(ctx context.Context, vm string) error {
	return a.admin(ctx, http.MethodPost, "/admin/vms/"+url.PathEscape(vm)+"/power-restore", nil)
}

// SetNetworkCut records at azuresim whether a VM's network is cut.
func (a *Azure) SetNetworkCut(ctx context.Context, vm string, cut bool) error {
	action := "network-restore"
	if cut {
		action = "network-cut"
	}
	return a.admin(ctx, http.MethodPost, "/admin/vms/"+url.PathEscape(vm)+"/"+action, nil)
}

// VMs lists all VMs.
func (a *Azure) VMs(ctx context.Context) ([]VM, error) {
	var list []VM
	return list, a.admin(ctx, http.MethodGet, "/admin/vms", &list)
}

// Watch calls changed with all VMs at first, after every change, and after azuresim
// was away, until the context ends.
func (a *Azure) Watch(ctx context.Context, changed func([]VM)) {
	for ctx.Err() == nil {
		if err := a.watchOnce(ctx, changed); err != nil && ctx.Err() == nil {
			a.opts.Log.Warn("azuresim's events ended, listening again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (a *Azure) watchOnce(ctx context.Context, changed func([]VM)) error {
	events, err := a.Admin().Open(ctx, http.MethodGet, "/admin/events", nil)
	if err != nil {
		return err
	}
	defer events.Close()
	// The list is read after the stream has begun, so no change falls between the two.
	for decoder := json.NewDecoder(events); ; {
		vms, err := a.VMs(ctx)
		if err != nil {
			return err
		}
		changed(vms)
		var event struct{}
		if err := decoder.Decode(&event); err != nil {
			return fmt.Errorf("read azuresim's events: %w", err)
		}
	}
}

func (a *Azure) waitHealthy(ctx context.Context) error {
	return poll.Until(ctx, time.Minute, 50*time.Millisecond, "azuresim answers (see "+a.logOf(frontEnd)+")",
		func(ctx context.Context) error {
			return a.admin(ctx, http.MethodGet, "/admin/healthz", nil)
		})
}

// waitForGuest waits until nodes can hand over their ioctls.
func (a *Azure) waitForGuest(ctx context.Context) error {
	return poll.Socket(ctx, GuestSocket(a.opts.Dir), "azuresim (see "+a.logOf(guest)+")")
}

func (a *Azure) logOf(name string) string { return filepath.Join(a.opts.Logs, name+".log") }

func (a *Azure) admin(ctx context.Context, method, path string, answer any) error {
	return a.Admin().Call(ctx, method, path, nil, answer)
}

// Admin is a client of the admin API by its socket.
func (a *Azure) Admin() Admin {
	return Admin{URL: "http://azuresim", Client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", AdminSocket(a.opts.Dir))
		},
		DisableKeepAlives: true,
	}}}
}
