package sdk_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/azuresim/server"
)

const serveEnv = "AZURESIM_TEST_STATE_DIR"

const hypervisorEnv = "AZURESIM_TEST_HYPERVISOR_DIR"

// TestMain turns the test binary into azuresim itself if it is started with a state directory, so that tests have real processes to kill.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(serveEnv) != "":
		dir := os.Getenv(serveEnv)
		o := server.Defaults()
		o.Listen, o.AdminListen = filepath.Join(dir, "azure.sock"), filepath.Join(dir, "admin.sock")
		o.StateDir, o.Latency, o.Throttle, o.LogLevel = dir, "fast", "off", "error"
		if h := filepath.Join(dir, "hypervisor.sock"); exists(h) {
			o.Hypervisor = h
		}
		err = server.Run(context.Background(), o, os.Stdout, os.Stderr)
	case os.Getenv(hypervisorEnv) != "":
		command := hypervisor.NewCommand()
		command.SetArgs([]string{"--state-dir", os.Getenv(hypervisorEnv)})
		err = command.Execute()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// process is azuresim as a process of its own, on unix sockets that stay the same over restarts.
type process struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
}

// shortDir is a directory for unix sockets, for which the paths of t.TempDir are too long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "azuresim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), serveEnv+"="+p.dir)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		p.t.Fatal("the process ended before it was ready")
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// client makes simulators whose clients reach the sockets of the process.
func (p *process) client() *simulator {
	s := &simulator{t: p.t, url: "http://azure", admin: "http://admin"}
	options := clientOptions(s.url)
	options.Transport = &http.Client{Transport: unixTransport(filepath.Join(p.dir, "azure.sock"))}
	f, err := armcompute.NewClientFactory(subscription, anyToken{}, options)
	if err != nil {
		p.t.Fatal(err)
	}
	s.disks, s.snapshots, s.vms = f.NewDisksClient(), f.NewSnapshotsClient(), f.NewVirtualMachinesClient()
	return s
}

// ledger is what the simulator acknowledged.
type ledger struct {
	mu       sync.Mutex
	accepted map[string]bool // disks whose creation was accepted
	done     map[string]bool // disks whose creation was reported as succeeded
	tokens   []string        // attach operations that were accepted
	attached map[string]bool // disk whose attach was reported as succeeded
}

func (l *ledger) note(m map[string]bool, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m[name] = true
}

// work creates disks and attaches them until ctx ends, and notes what it was told. Calls fail while the process is down; that is expected.
func (s *simulator) work(ctx context.Context, worker int, l *ledger) {
	vm := fmt.Sprintf("node%d", worker)
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("w%d-%d", worker, i)
		create, err := s.disks.BeginCreateOrUpdate(ctx, group, name, diskParams(), nil)
		if err != nil {
			<-time.After(2 * time.Millisecond)
			continue
		}
		l.note(l.accepted, name)
		if _, err := create.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Millisecond}); err != nil {
			continue
		}
		l.note(l.done, name)
		if i%3 != 0 || i > 90 {
			continue
		}
		attach, err := s.vms.BeginAttachDetachDataDisks(ctx, group, vm, attachments(name), nil)
		if err != nil {
			continue
		}
		if token, err := attach.ResumeToken(); err == nil {
			l.mu.Lock()
			l.tokens = append(l.tokens, token)
			l.mu.Unlock()
		}
		if _, err := attach.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Millisecond}); err == nil {
			l.note(l.attached, name)
		}
	}
}

func TestEveryAcknowledgedWriteSurvivesKills(t *testing.T) {
	const workers, kills = 3, 12
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	p := &process{t: t, dir: shortDir(t)}
	p.start()
	defer func() { p.kill() }()
	s := p.client()
	for i := range workers {
		s.vm(fmt.Sprintf("node%d", i), "Standard_D64s_v5")
	}
	l := &ledger{accepted: map[string]bool{}, done: map[string]bool{}, attached: map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() { s.work(ctx, i, l) })
	}
	for range kills {
		<-time.After(time.Duration(50+random.Intn(200)) * time.Millisecond)
		p.kill()
		p.start()
	}
	stop()
	running.Wait()
	verify(t, p, s, l)
}

// verify checks the ledger against what is there after the last restart.
func verify(t *testing.T, p *process, s *simulator, l *ledger) {
	t.Helper()
	admin := &http.Client{Transport: unixTransport(filepath.Join(p.dir, "admin.sock"))}
	s.eventually("nothing is under way and all is consistent", func() bool { return checked(t, admin) })
	for name := range l.accepted {
		if d, err := s.disks.Get(t.Context(), group, name, nil); err != nil || *d.Properties.ProvisioningState != "Succeeded" {
			t.Errorf("disk %s was accepted and is lost: %v", name, err)
		}
	}
	for name := range l.attached {
		if d := s.getDisk(name); d.ManagedBy == nil {
			t.Errorf("disk %s was attached and is not", name)
		}
	}
	for _, token := range l.tokens {
		op, err := s.vms.BeginAttachDetachDataDisks(t.Context(), "", "", armcompute.AttachDetachDataDisksRequest{},
			&armcompute.VirtualMachinesClientBeginAttachDetachDataDisksOptions{ResumeToken: token})
		finish(t, op, err)
	}
	t.Logf("%d disks accepted, %d reported done; %d attaches accepted, %d reported done", len(l.accepted), len(l.done), len(l.tokens), len(l.attached))
	if len(l.done) == 0 || len(l.attached) == 0 {
		t.Error("the test did nothing")
	}
}

func checked(t *testing.T, admin *http.Client) bool {
	t.Helper()
	resp, err := admin.Get("http://admin/admin/check")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Idle  bool
		Error string
	}
	decodeBody(t, resp, &out)
	if out.Error != "" {
		t.Fatalf("not consistent: %s", out.Error)
	}
	return out.Idle
}

func TestSecondProcessOnOneStateDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, func(o *server.Options) { o.StateDir = dir })
	o := server.Defaults()
	o.Listen, o.AdminListen, o.StateDir = "127.0.0.1:0", "", dir
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if err := server.Run(ctx, o, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("second process: %v, want an error that contains %q and %q", err, dir, "another process")
	}
}
