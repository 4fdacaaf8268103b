package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const neededDisk = 8 << 30

// tools are the programs that are taken from the machine, with the Debian package
// of each.
var tools = map[string]string{
	"runc": "runc", "nft": "nftables", "conntrack": "conntrack", "mount": "mount",
	"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs",
}

// Preflight says in plain sentences everything that keeps a playground from
// running on this machine. stateDir and cacheDir are where it would be kept.
func Preflight(stateDir, cacheDir string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the playground needs Linux; this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("the playground needs root: it makes namespaces, mounts and loop devices. Run it with sudo")
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if _, err := os.Stat("/dev/fuse"); err != nil {
		fault("there is no /dev/fuse: the kernel must have FUSE (try: modprobe fuse)")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		fault("there are no loop devices (no /dev/loop-control): the kernel must have them (try: modprobe loop)")
	}
	if !canCatchIoctls() {
		fault("the kernel cannot report ioctls by a seccomp filter: it must be Linux 5.19 or later, with seccomp")
	}
	for _, fs := range []string{"overlay", "ext4"} {
		if data, err := os.ReadFile("/proc/filesystems"); err == nil && !strings.Contains(string(data), "\t"+fs+"\n") {
			if exec.Command("modprobe", fs).Run() != nil {
				fault("the kernel has no filesystem %s (try: modprobe %s)", fs, fs)
			}
		}
	}
	for _, dir := range []string{stateDir, cacheDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			fault("the folder %s cannot be made: %v", dir, err)
			continue
		}
		if free := freeDisk(dir); free < neededDisk {
			fault("%s has %.1f GB free; the playground needs %d GB", dir, float64(free)/(1<<30), neededDisk>>30)
		}
	}
	var packages []string
	for tool, pkg := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			packages = append(packages, pkg)
		}
	}
	if _, err := exec.LookPath("go"); err != nil {
		fault("Go is not on the PATH: everything that runs here is built from source (see go.mod for the version)")
	}
	slices.Sort(packages)
	if len(packages) > 0 {
		fault("programs of these packages are missing: %s (run hack/install-packages.sh)", strings.Join(packages, ", "))
	}
	if _, err := DetectCgroups(stateDir); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// canCatchIoctls tells whether the kernel knows the flags of the filter by which
// azuresim answers ioctls. It looks at them before the filter, and there is none.
func canCatchIoctls() bool {
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, 0)
	return errno == unix.EFAULT
}

func freeDisk(dir string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}

// Snapshotter is the containerd snapshotter that works on the filesystems of all the
// folders: an overlay cannot be laid over another one.
func Snapshotter(dirs ...string) string {
	for _, dir := range dirs {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC {
			return "native"
		}
	}
	return "overlayfs"
}
