package registrar_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/azuredisk-csi/azuredisk/internal/node/registrar"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

const driverName = "disk.csi.azure.com"

type testbed struct {
	*registrar.Registrar
	dir    string
	cancel context.CancelFunc
	ended  chan error
}

func start(t *testing.T, await func(context.Context) error) *testbed {
	t.Helper()
	temp, err := os.MkdirTemp("", "reg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, temp) })
	bed := &testbed{dir: filepath.Join(temp, "plugins_registry"), ended: make(chan error, 1)}
	bed.Registrar = registrar.New(registrar.Options{
		DriverName: driverName,
		Socket:     "/plugins/" + driverName + "/csi.sock",
		Dir:        bed.dir,
		Await:      await,
	})
	ctx, cancel := context.WithCancel(t.Context())
	bed.cancel = cancel
	go func() { bed.ended <- bed.Start(ctx) }()
	return bed
}

// kubelet waits for the socket and dials it, as the kubelet does.
func (b *testbed) kubelet(t *testing.T) registration.RegistrationClient {
	t.Helper()
	expect.Eventually(t, "the registration socket", func() bool {
		_, err := os.Lstat(b.SocketPath())
		return err == nil
	})
	conn, err := grpc.NewClient("unix://"+b.SocketPath(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return registration.NewRegistrationClient(conn)
}

func TestTheKubeletRegistersThePlugin(t *testing.T) {
	bed := start(t, nil)
	if !strings.HasSuffix(bed.SocketPath(), "/plugins_registry/disk.csi.azure.com-reg.sock") {
		t.Errorf("socket = %s", bed.SocketPath())
	}
	kubelet := bed.kubelet(t)
	info, err := kubelet.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if info.GetType() != "CSIPlugin" || info.GetName() != driverName ||
		info.GetEndpoint() != "/plugins/disk.csi.azure.com/csi.sock" || len(info.GetSupportedVersions()) != 1 {
		t.Errorf("GetInfo = %+v", info)
	}
	if bed.Registered() == nil {
		t.Error("the plug-in counts as registered before the kubelet said so")
	}
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(),
		&registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	if err := bed.Registered(); err != nil {
		t.Error(err)
	}
	bed.cancel()
	if err := <-bed.ended; err != nil {
		t.Errorf("Start = %v", err)
	}
	if _, err := os.Lstat(bed.SocketPath()); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestARefusalEndsTheProcess(t *testing.T) {
	bed := start(t, nil)
	defer bed.cancel()
	_, err := bed.kubelet(t).NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "NodeGetInfo failed"},
		grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-bed.ended; err == nil || !strings.Contains(err.Error(), "NodeGetInfo failed") {
		t.Errorf("Start = %v, want the kubelet's words", err)
	}
	if _, err := os.Lstat(bed.SocketPath()); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestARemovedSocketIsCreatedAgain(t *testing.T) {
	wipes := map[string]func(*testing.T, *testbed){
		"after the socket was removed":    func(t *testing.T, b *testbed) { remove(t, b.SocketPath()) },
		"after the directory was removed": func(t *testing.T, b *testbed) { remove(t, b.dir) },
	}
	for name, wipe := range wipes {
		t.Run(name, func(t *testing.T) {
			bed := start(t, nil)
			if _, err := bed.kubelet(t).GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			wipe(t, bed)
			if _, err := bed.kubelet(t).GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			bed.cancel()
			if err := <-bed.ended; err != nil {
				t.Errorf("Start = %v", err)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestTheSocketAppearsOnlyWhenThePluginCanServe(t *testing.T) {
	ready := make(chan struct{})
	bed := start(t, func(ctx context.Context) error {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if _, err := os.Lstat(bed.SocketPath()); !os.IsNotExist(err) {
		t.Errorf("the socket is there too early: %v", err)
	}
	close(ready)
	bed.kubelet(t)
	bed.cancel()
	if err := <-bed.ended; err != nil {
		t.Errorf("Start = %v", err)
	}
	failing := start(t, func(context.Context) error { return errors.New("no report") })
	if err := <-failing.ended; err == nil {
		t.Error("a plug-in that cannot serve was registered")
	}
}
