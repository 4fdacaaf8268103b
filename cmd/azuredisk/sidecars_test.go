package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
)

// probeSidecars starts sidecars beside a controller, and asks what the kubelet asks by the chart.
// csi-snapshotter needs definitions that this API server does not have.
func probeSidecars(t *testing.T, settings *config.Controller) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, name := range []string{"csi-provisioner", "csi-attacher", "csi-resizer"} {
		program, err := programs.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		address := loopback.Address(t)
		sidecar := exec.CommandContext(ctx, program, "--csi-address="+strings.TrimPrefix(settings.Endpoint, "unix://"),
			"--kubeconfig="+settings.Kubeconfig,
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
