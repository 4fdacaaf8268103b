package sdk_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
)

const serveEnv = "AZURESIM_TEST_STATE_DIR"

const hypervisorEnv = "AZURESIM_TEST_HYPERVISOR_DIR"

// TestMain turns the test binary into azuresim itself if it is started with a state directory, so
// that tests have real processes to kill.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(serveEnv) != "":
		dir := os.Getenv(serveEnv)
		o := server.Defaults()
		o.Listen, o.AdminListen = filepath.Join(dir, "azure.sock"), filepath.Join(dir, "admin.sock")
		o.StateDir, o.Latency, o.Throttle, o.LogLevel = dir, "fast", "off", "error"
		o.Reservations = "keep" // by the seed, some disks would forget theirs at a detach
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
	s := &simulator{
		t:     p.t,
		url:   "http://azure",
		admin: "http://admin",
	}
	s.connect(&http.Client{Transport: unixTransport(filepath.Join(p.dir, "azure.sock"))})
	return s
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
	if err := server.Run(ctx, o, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), "another process") {
		t.Errorf("second process: %v, want an error that contains %q and %q", err, dir, "another process")
	}
}
