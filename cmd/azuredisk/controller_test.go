package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// TestMain starts an API server for the tests of the subcommands' wiring.
func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// TestControllerServesCSIAndMetrics is the only test that starts a whole controller: its metrics are
// registered once in a process.
func TestControllerServesCSIAndMetrics(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	settings := &config.Controller{}
	settings.AddFlags(pflag.NewFlagSet("test", pflag.ContinueOnError))
	settings.Namespace = apiserver.Namespace(t)
	settings.Kubeconfig = apiserver.Kubeconfig(t)
	settings.Endpoint = "unix://" + filepath.Join(dir, "csi.sock")
	settings.MetricsAddress = loopback.Address(t)
	settings.AttachRequired = true // for csi-attacher
	settings.SubscriptionID, settings.ResourceGroup, settings.Location = "00000000-0000-0000-0000-000000000001", "rg", "eastus"
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
	conn, err := grpc.NewClient(settings.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(call, &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != config.DriverName {
		t.Fatalf("%v: %v", info, err)
	}
	created, err := csi.NewControllerClient(conn).CreateVolume(call, &csi.CreateVolumeRequest{
		Name:          "wired",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := csi.NewControllerClient(conn).DeleteVolume(call,
		&csi.DeleteVolumeRequest{VolumeId: created.GetVolume().GetVolumeId()}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"azuredisk_csi_call_duration_seconds", "azuredisk_replicas_wanted",
		"leader_election_master_status"} {
		if !strings.Contains(metrics(t, settings.MetricsAddress), name) {
			t.Errorf("metric %s is missing", name)
		}
	}
	probeSidecars(t, settings)
}

func metrics(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
