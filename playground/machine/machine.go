package machine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/network"
	"github.com/azuredisk-csi/azuredisk/playground/poll"
	"github.com/azuredisk-csi/azuredisk/playground/process"
)

// Machine is a node as seen from outside. Its methods may be called concurrently.
type Machine struct {
	spec Spec
	log  *slog.Logger

	mu   sync.Mutex
	init *process.Child
}

// New returns a machine that is switched off. Its disk must have been written.
func New(spec Spec, log *slog.Logger) *Machine {
	return &Machine{spec: spec, log: log.With("node", spec.Name)}
}

// PowerOn boots the machine in the network namespace. A running machine is left alone.
func (m *Machine) PowerOn(ns *network.Namespace) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running() {
		return nil
	}
	init, err := process.Start(process.Spec{
		Name:   "machine",
		Path:   "/proc/self/exe",
		Args:   []string{"node-boot", m.spec.Disk},
		LogDir: m.spec.Logs,
		Clone:  syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Enter:  ns.Do,
		Once:   true,
	}, m.log)
	if err != nil {
		return err
	}
	m.init = init
	return nil
}

// PowerOff kills the machine's first process, and with it every process of the
// machine, and returns when all are gone.
func (m *Machine) PowerOff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init != nil {
		m.init.Kill()
		m.init = nil
	}
	if err := m.spec.Cgroups.Remove(m.spec.Name); err != nil {
		m.log.Warn("control groups of the machine are left", "error", err)
	}
}

// Running reports whether the machine is switched on.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running()
}

func (m *Machine) running() bool {
	if m.init == nil {
		return false
	}
	select {
	case <-m.init.Done():
		return false
	default:
		return true
	}
}

// PID is the process number of the machine's first process, or 0 if it is off.
func (m *Machine) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running() {
		return 0
	}
	return m.init.PID()
}

// LoadImage gives the image tar to the machine's containerd, once that answers.
func (m *Machine) LoadImage(ctx context.Context, tar string) error {
	ctr := filepath.Join(m.spec.ContainerdPrograms, "ctr")
	var socket string
	err := poll.Until(ctx, time.Minute, 100*time.Millisecond, "containerd of "+m.spec.Name+" runs",
		func(context.Context) (err error) {
			socket, err = m.socket()
			return err
		})
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, ctr, "--address", socket, "-n", "k8s.io", "images", "import", tar).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s on %s: %w: %s", tar, m.spec.Name, err, out)
	}
	return nil
}

// socket is containerd's socket as seen through the machine's root. Before the
// machine has entered its root, that is the host's, whose containerd is not meant.
func (m *Machine) socket() (string, error) {
	pid := m.PID()
	if pid == 0 {
		return "", fmt.Errorf("%s is switched off", m.spec.Name)
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	if _, err := os.Stat(filepath.Join(root, specFile)); err != nil {
		return "", fmt.Errorf("%s has not booted: %w", m.spec.Name, err)
	}
	if _, err := os.Stat(root + containerdSocket); err != nil {
		return "", fmt.Errorf("containerd of %s does not run: %w", m.spec.Name, err)
	}
	return root + containerdSocket, nil
}
