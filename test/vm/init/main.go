// Command init is the first process of the virtual machine of `make vm-test`. It loads the modules,
// mounts what a system has, starts udev and runs the test binaries in /share/suites. It tells QEMU
// whether every test passed, and the machine ends.
//
// Nothing else tells QEMU so: a machine that panics or stops otherwise has failed.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// passed is written to the port of QEMU's device isa-debug-exit. QEMU ends with twice that
	// number and 1.
	passed   = 16
	exitPort = 0x501

	suites = "/share/suites"
	// cache has Kubernetes' programs as the cache of the machine outside has them: see
	// internal/testkit/programs.
	cache = "/cache"
)

func main() {
	begin := time.Now()
	err := boot()
	if err == nil {
		fmt.Printf("vm: booted %.1f s after the kernel started; init took %.1f s of it\n", uptime(), time.Since(begin).Seconds())
		err = runSuites()
	}
	if err != nil {
		fmt.Println("vm: FAIL:", err)
		kernelLog()
	} else {
		fmt.Printf("vm: PASS: every test of every suite ran and passed, %.1f s after the kernel started\n", uptime())
		_ = unix.IoctlSetInt(1, unix.TCSBRK, 1) // QEMU ends at once: wait until the console has everything
		port, err := os.OpenFile("/dev/port", os.O_WRONLY, 0)
		if err == nil {
			_, err = port.WriteAt([]byte{passed}, exitPort)
		}
		fmt.Println("vm: FAIL: cannot tell QEMU that the tests passed:", err)
	}
	unix.Sync()
	fmt.Println("vm: cannot power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

// boot makes the machine what a node is.
func boot() error {
	for _, m := range []struct{ target, kind, data string }{
		{"/proc", "proc", ""}, {"/sys", "sysfs", ""}, {"/dev", "devtmpfs", ""}, {"/run", "tmpfs", ""}, {"/tmp", "tmpfs", ""},
		{"/var", "tmpfs", ""}, {"/sys/fs/cgroup", "cgroup2", ""},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.kind, m.target, err)
		}
	}
	for name, value := range map[string]string{"PATH": "/usr/sbin:/usr/bin", "AZUREDISK_CACHE": cache} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return err
	}
	begin := time.Now()
	if err := loadModules("/etc/modules.load"); err != nil {
		return err
	}
	fmt.Printf("vm: loading the modules took %.1f s\n", time.Since(begin).Seconds())
	if err := unix.Mount("configfs", "/sys/kernel/config", "configfs", 0, ""); err != nil {
		return fmt.Errorf("mount configfs: %w", err)
	}
	for tag, target := range map[string]string{"share": filepath.Dir(suites), "programs": filepath.Join(cache, "programs")} {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		// The files do not change, and programs are mapped into memory from them.
		if err := unix.Mount(tag, target, "9p", unix.MS_RDONLY,
			"trans=virtio,version=9p2000.L,cache=loose,msize=512000"); err != nil {
			return fmt.Errorf("mount %s at %s: %w", tag, target, err)
		}
	}
	// The kernel's target keeps there what survives a loss of power.
	if err := os.MkdirAll("/var/target/pr", 0o755); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set up the loopback interface: %w", err)
	}
	// There is no disk yet. What else there is needs no links.
	if out, err := exec.Command("/usr/lib/systemd/systemd-udevd", "--daemon",
		"--resolve-names=never").CombinedOutput(); err != nil {
		return fmt.Errorf("start udev: %w: %s", err, out)
	}
	return nil
}

func loadModules(list string) error {
	names, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(names)) {
		file, err := os.Open("/" + name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		_ = file.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// runSuites runs every test of every suite, also after one has failed.
func runSuites() error {
	files, err := filepath.Glob(suites + "/*")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("there are no suites in %s, want at least one (%w)", suites, err)
	}
	var faults []error
	for _, file := range files {
		begin := time.Now()
		err := runSuite(file)
		fmt.Printf("vm: suite %s: %.1f s, %v\n", filepath.Base(file), time.Since(begin).Seconds(), err)
		if err != nil {
			faults = append(faults, fmt.Errorf("suite %s: %w", filepath.Base(file), err))
		}
	}
	return errors.Join(faults...)
}

// runSuite runs a test binary. A test that did not run, or was skipped, is a failure.
func runSuite(file string) error {
	listed, err := exec.Command(file, "-test.list", ".").Output()
	if err != nil {
		return fmt.Errorf("list the tests: %w", err)
	}
	tests := strings.Fields(string(listed))
	if len(tests) == 0 {
		return errors.New("it has no tests")
	}
	var output bytes.Buffer
	cmd := exec.Command(file, "-test.v", "-test.timeout=7m", "-test.run="+os.Getenv("RUN"))
	cmd.Dir = "/tmp"
	cmd.Stdout = io.MultiWriter(os.Stdout, &output)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return err
	}
	return missing(tests, output.String())
}

// missing names the tests that the output does not report as passed, and all that were skipped.
func missing(tests []string, output string) error {
	var faults []error
	for _, test := range tests {
		if !strings.Contains(output, "\n--- PASS: "+test+" (") {
			faults = append(faults, fmt.Errorf("%s did not run and pass", test))
		}
	}
	if strings.Contains(output, "--- SKIP: ") {
		faults = append(faults, errors.New("a test was skipped"))
	}
	return errors.Join(faults...)
}

func uptime() float64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return float64(now.Nano()) / 1e9
}

// kernelLog prints the end of the kernel's log.
func kernelLog() {
	log := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	if err != nil {
		fmt.Println("vm: read the kernel's log:", err)
		return
	}
	fmt.Printf("vm: the end of the kernel's log:\n%s\n", log[max(0, n-8<<10):n])
}
