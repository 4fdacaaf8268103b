package reservation_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/guest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/hypervisor"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/conformance/reservations"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/reservation"
)

// The test binary also plays the processes of azuresim, and the process of a VM in which the suite
// runs.
const (
	roleVariable = "RESERVATION_TEST_ROLE"
	// stateVariable is the state directory of the hypervisor for the process of a VM.
	stateVariable = "RESERVATION_TEST_STATE"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" || role == "vm" {
		os.Exit(m.Run())
	}
	command := hypervisor.NewCommand()
	if role == "guest" {
		command = guest.NewCommand()
	}
	command.SetArgs(os.Args[1:])
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is a process of azuresim that the test starts and ends.
type process struct {
	*exec.Cmd
	done chan struct{}
}

func play(t *testing.T, role string, args ...string) *process {
	t.Helper()
	p := &process{exec.Command(os.Args[0], args...), make(chan struct{})}
	p.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	p.Stderr = os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.Wait()
	}()
	t.Cleanup(func() { p.end(unix.SIGTERM) })
	return p
}

func (p *process) end(signal syscall.Signal) {
	_ = p.Process.Signal(signal)
	<-p.done
}

// await waits until a process that was started answers.
var must, await = expect.Must, expect.Eventually

// TestReservationsOfAzuresim runs the suite in a process whose ioctls azuresim answers: they are
// the real ones of the kernel.
func TestReservationsOfAzuresim(t *testing.T) {
	if err := hypervisor.CheckMachine(); err != nil {
		t.Fatalf("this test needs root, /dev/fuse and loop devices: %v", err)
	}
	if os.Getenv(roleVariable) == "vm" {
		l := &laboratory{dir: os.Getenv(stateVariable)}
		l.start(t)
		reservations.Run(t, reservations.Harness{
			NewDisk:     l.newDisk,
			Restart:     l.restart,
			Detach:      l.detach,
			Unsupported: l.unsupported,
		})
		return
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "guest.sock")
	play(t, "guest", "serve", "--socket", socket, "--hypervisor", filepath.Join(dir, "hypervisor.sock"))
	await(t, "azuresim guest", func() bool {
		connection, err := net.Dial("unix", socket)
		return err == nil && connection.Close() == nil
	})
	vm := exec.Command(os.Args[0], "run", "--socket", socket, "--",
		"env", roleVariable+"=vm", os.Args[0], "-test.run=^TestReservationsOfAzuresim$", "-test.v")
	vm.Env = append(os.Environ(), roleVariable+"=guest", stateVariable+"="+dir)
	out, err := vm.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: TestReservationsOfAzuresim/no_write_after_a_pre-emption") {
		t.Errorf("the suite in the VM ended with %v, want that it passes", err)
	}
}

// laboratory is a hypervisor with three VMs that share each disk.
type laboratory struct {
	dir     string
	whole   *testing.T // which the processes live as long as
	process *process
	client  *hypervisor.Client
	disk    string // the last one
	disks   int
}

func (l *laboratory) start(t *testing.T) {
	t.Helper()
	l.whole = t
	l.process = play(t, "hypervisor", "--state-dir", l.dir)
	l.client = hypervisor.NewClient(filepath.Join(l.dir, "hypervisor.sock"))
	await(t, "azuresim hypervisor", func() bool {
		_, err := l.client.List(t.Context())
		return err == nil
	})
}

// newDisk makes a disk and attaches it to the VMs, at a LUN of its own.
func (l *laboratory) newDisk(t *testing.T) []reservations.Host {
	t.Helper()
	l.disks++
	l.disk = fmt.Sprintf("disk-%d", l.disks)
	must(t, l.client.CreateDisk(t.Context(), l.disk, 16*hosttest.MiB, ""))
	must(t, l.client.SetShared(t.Context(), l.disk, true))
	for vm := range 3 {
		must(t, l.client.Attach(t.Context(), vmName(vm), l.disks, l.disk))
	}
	return l.hosts(t)
}

func vmName(vm int) string { return fmt.Sprintf("vm-%d", vm) }

func (l *laboratory) hosts(t *testing.T) (hosts []reservations.Host) {
	t.Helper()
	for vm := range 3 {
		link := filepath.Join(hypervisor.DeviceDir(l.dir, vmName(vm)), "data/by-lun", fmt.Sprint(l.disks))
		device, err := filepath.EvalSymlinks(link)
		must(t, err)
		hosts = append(hosts, reservations.Host{Reservations: reservation.Reservations{}, Device: device})
	}
	return hosts
}

// restart is a loss of power of the storage.
func (l *laboratory) restart(t *testing.T) []reservations.Host {
	t.Helper()
	l.process.end(unix.SIGKILL)
	l.start(l.whole)
	return l.hosts(t)
}

func (l *laboratory) detach(t *testing.T) {
	t.Helper()
	must(t, l.client.Detach(t.Context(), vmName(0), l.disks, l.disk))
}

func (l *laboratory) unsupported(t *testing.T) reservations.Host {
	t.Helper()
	return reservations.Host{Reservations: reservation.Reservations{}, Device: hosttest.NewDisk(t, hosttest.MiB).Device}
}

// TestADiskWithoutReservations asks the kernel itself, which has no reservations for a loop device.
func TestADiskWithoutReservations(t *testing.T) {
	device := hosttest.NewDisk(t, hosttest.MiB).Device
	if _, err := (reservation.Reservations{}).Read(t.Context(), device); !errors.Is(err, provisioner.Unsupported) {
		t.Errorf("read the reservations of a loop device: got %v, want Unsupported", err)
	}
}
