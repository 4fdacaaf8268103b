package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// TestTheSidecarsAnswerTheProbeOfTheChart starts sidecars beside the controller, and asks what the
// kubelet asks. csi-snapshotter needs definitions that this API server does not have.
func TestTheSidecarsAnswerTheProbeOfTheChart(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "csi.sock")
	settings := &config.Controller{}
	settings.AddFlags(pflag.NewFlagSet("test", pflag.ContinueOnError))
	settings.Namespace, settings.Kubeconfig = apiserver.Namespace(t), apiserver.Kubeconfig(t)
	settings.Endpoint, settings.MetricsAddress, settings.AttachRequired = "unix://"+socket, "0", true
	settings.SubscriptionID, settings.ResourceGroup, settings.Location = "sub", "rg", "eastus"
	if err := settings.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runController(ctx, settings, fake.New(fake.Options{})) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"csi-provisioner", "csi-attacher", "csi-resizer"} {
		program, err := programs.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		address := loopback.Address(t)
		sidecar := exec.CommandContext(ctx, program, "--csi-address="+socket, "--kubeconfig="+settings.Kubeconfig,
			"--leader-election", "--leader-election-namespace="+settings.Namespace, "--http-endpoint="+address)
		if err := sidecar.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = sidecar.Process.Kill()
			_ = sidecar.Wait()
		}()
		if err := answers(ctx, "http://"+address+"/healthz/leader-election"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// answers waits until a URL is answered with 200.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("got %s, want 200", response.Status)
		}
		last = err
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}
