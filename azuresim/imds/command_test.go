package imds_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/azuresim/imds"
)

func TestAddressesOfAHostAreRefused(t *testing.T) {
	for _, address := range []string{"169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:80", "[::ffff:169.254.169.254]:80", "localhost:80"} {
		command := imds.NewCommand()
		command.SetArgs([]string{"--arm-endpoint", "http://127.0.0.1:1", "--subscription", "s", "--resource-group", "g", "--vm", "v", "--listen", address})
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "address not allowed") {
			t.Errorf("%s: %v, want it refused", address, err)
		}
	}
}

func TestAllMissingFlagsAreNamed(t *testing.T) {
	command := imds.NewCommand()
	command.SetArgs(nil)
	err := command.ExecuteContext(t.Context())
	for _, flag := range []string{"--arm-endpoint", "--subscription", "--resource-group", "--vm"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("got %v, want an error that names %s", err, flag)
		}
	}
}

// vmNamespace is a network namespace with Azure's metadata address in it.
func vmNamespace(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes a network namespace and needs root")
	}
	// It makes its own address, so that no mistake about namespaces can give it to the host, and ends when its input does.
	holder := exec.Command("unshare", "--net", "sh", "-c", "ip link set lo up && ip addr add 169.254.169.254/32 dev lo && echo ready && exec cat")
	stdin, err := holder.StdinPipe()
	must(t, err)
	stdout, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = holder.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the namespace said %q: %v, want %q", line, err, "ready\n")
	}
	return filepath.Join("/proc", strconv.Itoa(holder.Process.Pid), "ns", "net")
}

// clientIn is a client whose connections begin in the namespace.
func clientIn(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		var conn net.Conn
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked, so the thread ends here
			var fd int
			if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return
			}
			defer unix.Close(fd)
			if err = unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return
			}
			conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
		}()
		<-done
		return conn, err
	}}}
}

func TestServiceHasAzuresAddressInsideTheVMAndReachesTheFrontEndFromOutside(t *testing.T) {
	namespace := vmNamespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	command := imds.NewCommand()
	command.SetArgs([]string{
		"--arm-endpoint", startFrontEnd(t).URL, "--resource-id", vmPath, "--netns", namespace, "--listen", "169.254.169.254:80",
	})
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	client := clientIn(namespace)
	var body []byte
	eventually(t, "the service answers at Azure's address", func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://169.254.169.254/metadata/instance/compute/name?format=text&api-version=2021-02-01", nil)
		must(t, err)
		request.Header.Set("Metadata", "true")
		answer, err := client.Do(request)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, err = io.ReadAll(answer.Body)
		return err == nil
	})
	if string(body) != "node-1" {
		t.Errorf("name %q", body)
	}
	cancel()
	must(t, <-ended)
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not in 20 s: %s", what)
		case <-tick.C:
		}
	}
}
