package server_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/rpc/server"
)

// nodeServer answers with what the test says.
type nodeServer struct {
	csi.UnimplementedNodeServer
	stage func(context.Context) error
}

func (s *nodeServer) NodeStageVolume(ctx context.Context, _ *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, s.stage(ctx)
}

type testbed struct {
	client csi.NodeClient
	socket string
	cancel context.CancelFunc
	ended  chan error
	log    *logLines
}

type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func start(t *testing.T, socket string, registry prometheus.Registerer, stage func(context.Context) error) *testbed {
	t.Helper()
	bed := &testbed{
		socket: socket,
		ended:  make(chan error, 1),
		log:    &logLines{},
	}
	s, err := server.New(server.Options{
		Endpoint:    "unix://" + socket,
		Register:    func(r grpc.ServiceRegistrar) { csi.RegisterNodeServer(r, &nodeServer{stage: stage}) },
		Log:         funcr.New(bed.log.add, funcr.Options{Verbosity: 1}),
		Metrics:     registry,
		StopTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	bed.cancel = cancel
	go func() { bed.ended <- s.Start(ctx) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
	})
	bed.client = csi.NewNodeClient(conn)
	return bed
}

func (b *testbed) call(t *testing.T, request *csi.NodeStageVolumeRequest) error {
	t.Helper()
	_, err := b.client.NodeStageVolume(t.Context(), request, grpc.WaitForReady(true))
	return err
}

func socketPath(t *testing.T) string { return filepath.Join(t.TempDir(), "plugin", "csi.sock") }

func TestASocketThatAKilledProcessLeftBehindIsReplaced(t *testing.T) {
	socket := socketPath(t)
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	bed := start(t, socket, nil, func(context.Context) error { return nil })
	if err := bed.call(t, &csi.NodeStageVolumeRequest{}); err != nil {
		t.Fatal(err)
	}
}

func TestAPanicHasNoFinalCodeAndTheServerGoesOn(t *testing.T) {
	registry := prometheus.NewRegistry()
	calls := 0
	bed := start(t, socketPath(t), registry, func(context.Context) error {
		if calls++; calls == 1 {
			panic("boom")
		}
		return nil
	})
	if err := bed.call(t, &csi.NodeStageVolumeRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a panic became %v, want Unavailable", err)
	}
	if err := bed.call(t, &csi.NodeStageVolumeRequest{}); err != nil {
		t.Errorf("the call after the panic: %v", err)
	}
	for _, name := range []string{"azuredisk_csi_call_duration_seconds", "azuredisk_csi_driver_operations_total"} {
		if series, err := testutil.GatherAndCount(registry, name); err != nil || series != 2 {
			t.Errorf("%s: %d series, %v; want a success and a failure", name, series, err)
		}
	}
}

func TestACallWithinTheProcessPassesTheInterceptors(t *testing.T) {
	log, registry := &logLines{}, prometheus.NewRegistry()
	s, err := server.New(server.Options{
		Endpoint: socketPath(t),
		Register: func(grpc.ServiceRegistrar) {},
		Log:      funcr.New(log.add, funcr.Options{}),
		Metrics:  registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	call := server.InProcess(s, csi.Node_NodeStageVolume_FullMethodName,
		func(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
			if r.GetVolumeId() == "panics" {
				panic("boom")
			}
			logr.FromContextOrDiscard(ctx).Info("inside")
			return &csi.NodeStageVolumeResponse{}, nil
		})
	if response, err := call(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "vol-1"}); response == nil || err != nil {
		t.Errorf("got response %v and error %v, want a response", response, err)
	}
	if response, err := call(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "panics"}); response != nil ||
		status.Code(err) != codes.Unavailable {
		t.Errorf("after a panic: got response %v and error %v, want Unavailable", response, err)
	}
	for _, want := range []string{`"method"="NodeStageVolume"`, `"volumeID"="vol-1"`, "inside", "call served", "call failed"} {
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("got log %s, want it to contain %q", text, want)
		}
	}
	for _, name := range []string{"azuredisk_csi_call_duration_seconds", "azuredisk_csi_driver_operations_total"} {
		if series, err := testutil.GatherAndCount(registry, name); err != nil || series != 2 {
			t.Errorf("%s: got %d series (%v), want one of a success and one of a failure", name, series, err)
		}
	}
}

func TestSecretsDoNotReachTheLog(t *testing.T) {
	bed := start(t, socketPath(t), nil, func(ctx context.Context) error {
		logr.FromContextOrDiscard(ctx).Info("inside")
		return status.Error(codes.Aborted, "busy")
	})
	err := bed.call(t, &csi.NodeStageVolumeRequest{VolumeId: "vol-1", Secrets: map[string]string{"key": "hunter2"}})
	if status.Code(err) != codes.Aborted {
		t.Fatal(err)
	}
	text := bed.log.String()
	if strings.Contains(text, "hunter2") || !strings.Contains(text, "stripped") {
		t.Errorf("the log holds the secret, or nothing of it: %s", text)
	}
	for _, want := range []string{`"volumeID"="vol-1"`, "busy", "Aborted", "inside"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
}

func TestStopLetsTheCallInFlightEnd(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	bed := start(t, socketPath(t), nil, func(context.Context) error {
		close(entered)
		<-release
		return nil
	})
	answered := make(chan error, 1)
	go func() {
		_, err := bed.client.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{}, grpc.WaitForReady(true))
		answered <- err
	}()
	<-entered
	bed.cancel()
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-bed.ended; err != nil {
		t.Errorf("Start = %v", err)
	}
	if _, err := os.Lstat(bed.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}
