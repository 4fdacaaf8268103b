package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/playground/pid1"
)

// Boot is the first thing that runs in a new machine, as process 1 of its
// namespaces: it moves to the machine's control group, which becomes the root of
// the machine's view of control groups, and replaces itself with Init. On the way
// azuresim installs a filter by which all processes of the machine get the ioctls
// of SCSI reservations for their disks.
func Boot(disk string, initArgs ...string) error {
	spec, err := ReadSpec(disk)
	if err != nil {
		return fmt.Errorf("read the machine's specification: %w", err)
	}
	if err := spec.Cgroups.Join(spec.Name); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// Unshare changes this thread only. Exec makes this thread the process.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a control group namespace: %w", err)
	}
	guest := []string{spec.Azuresim, "guest", "run", "--socket", spec.GuestSocket, "--", self}
	return unix.Exec(spec.Azuresim, append(guest, initArgs...), os.Environ())
}

// Init makes the machine's root, enters it, and runs the given subcommand of this
// program in it until that ends. It returns the exit code of the machine.
func Init(disk string, runArgs ...string) (int, error) {
	spec, err := ReadSpec(disk)
	if err != nil {
		return 1, fmt.Errorf("read the machine's specification: %w", err)
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return 1, fmt.Errorf("set the host name: %w", err)
	}
	if err := spec.mountRoot(); err != nil {
		return 1, fmt.Errorf("mount the root of %s: %w", spec.Name, err)
	}
	os.Clearenv()
	for _, variable := range Environment() {
		name, value, _ := strings.Cut(variable, "=")
		os.Setenv(name, value)
	}
	return pid1.Run("/proc/self/exe", runArgs...)
}

// Environment is the environment of the programs of a machine. PATH leads to those of Kubernetes
// and containerd.
func Environment() []string {
	path := []string{kubernetesBin, containerdBin, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	return []string{"PATH=" + strings.Join(path, ":"), "HOME=/root"}
}

// root collects mounts and keeps the first error.
type root struct {
	path string
	err  error
}

func (r *root) mount(source, target, fstype string, flags uintptr, options string) {
	if r.err != nil {
		return
	}
	path := filepath.Join(r.path, target)
	if r.err = os.MkdirAll(path, 0o755); r.err != nil {
		return
	}
	if err := unix.Mount(source, path, fstype, flags, options); err != nil {
		r.err = fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
}

func (r *root) bind(source, target string) { r.mount(source, target, "", unix.MS_BIND|unix.MS_REC, "") }

func (r *root) bindReadOnly(source, target string) {
	r.bind(source, target)
	r.mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func (r *root) tmpfs(target, mode string) {
	r.mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+mode)
}

func (r *root) symlink(target, name string) {
	if r.err == nil {
		if err := os.Symlink(target, filepath.Join(r.path, name)); !errors.Is(err, os.ErrExist) {
			r.err = err
		}
	}
}

func (s Spec) mountRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	r := &root{path: s.Root}
	r.mount("tmpfs", "/", "tmpfs", 0, "mode=755")
	s.mountSystem(r)
	for _, dir := range []string{"etc", "var", "opt", "root", "home"} {
		r.bind(filepath.Join(s.Disk, dir), dir)
	}
	r.bindReadOnly(s.KubernetesPrograms, kubernetesBin)
	r.bindReadOnly(s.ContainerdPrograms, containerdBin)
	r.bind(s.Logs, logDir)
	r.tmpfs("run", "755")
	r.tmpfs("tmp", "1777")
	r.symlink("../run", "var/run")
	s.mountDevices(r)
	r.mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	r.mount("sysfs", "sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	s.mountCgroups(r)
	if r.err != nil {
		return r.err
	}
	return enter(r.path)
}

// mountSystem shows the host's programs and libraries, read-only.
func (s Spec) mountSystem(r *root) {
	for _, dir := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		info, err := os.Lstat("/" + dir)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink("/" + dir)
			if err != nil {
				r.err = err
			}
			r.symlink(target, dir)
		default:
			r.bindReadOnly("/"+dir, dir)
		}
	}
}

// mountDevices shows the host's devices, because loop devices must appear here
// when they are made, but with this machine's Azure disks only.
func (s Spec) mountDevices(r *root) {
	r.bind("/dev", "dev")
	r.tmpfs("dev/shm", "1777")
	r.tmpfs("dev/disk", "755")
	r.bind(s.AzureDisks, "dev/disk/azure")
}

func (s Spec) mountCgroups(r *root) {
	if s.Cgroups.Unified() {
		r.mount("cgroup2", s.Cgroups.Hierarchies[0].Mount, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		return
	}
	r.tmpfs("sys/fs/cgroup", "755")
	for _, h := range s.Cgroups.Hierarchies {
		r.mount(h.Type, h.Mount, h.Type, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.Options)
		controllers := strings.Split(h.Options, ",")
		for _, controller := range controllers {
			if len(controllers) > 1 && controller != "none" && !strings.HasPrefix(controller, "name=") {
				r.symlink(filepath.Base(h.Mount), filepath.Join("sys/fs/cgroup", controller))
			}
		}
	}
}

// enter makes the folder the root of this machine and forgets the old one. Mounts
// are shared, as on a machine with systemd: kubelets and CSI drivers rely on it.
func enter(path string) error {
	if err := unix.Chdir(path); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}
