// Package process runs and identifies operating system processes.
//
// A process is identified by its PID together with its start time and the
// machine's boot, so that no signal goes to another process to which the kernel has
// given a recorded PID since.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Identity names one process beyond doubt.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since the boot, as the kernel tells it.
	StartTime uint64 `json:"startTime"`
	BootID    string `json:"bootID"`
}

// Identify returns the identity of a running process.
func Identify(pid int) (Identity, error) {
	start, err := startTime(pid)
	if err != nil {
		return Identity{}, err
	}
	boot, err := bootID()
	if err != nil {
		return Identity{}, err
	}
	return Identity{
		PID:       pid,
		StartTime: start,
		BootID:    boot,
	}, nil
}

// Alive tells whether that very process still runs.
func (id Identity) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	now, err := Identify(id.PID)
	return err == nil && now == id
}

// End asks the process to end (SIGTERM), kills it if it has not ended after
// grace, and returns when it is gone. A process that is gone already is fine.
func (id Identity) End(ctx context.Context, grace time.Duration) error {
	fd, err := id.open()
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", id.PID, err)
	}
	if waitGone(ctx, fd, grace) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", id.PID, err)
	}
	if !waitGone(context.WithoutCancel(ctx), fd, 30*time.Second) {
		return fmt.Errorf("process %d does not end even when killed", id.PID)
	}
	return nil
}

// open returns a descriptor of the process, or -1 if it is gone. The descriptor
// is taken before the identity is checked, so it can be of no other process.
func (id Identity) open() (int, error) {
	if id.PID <= 0 {
		return -1, nil
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", id.PID, err)
	}
	if !id.Alive() {
		unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

// waitGone waits until the process of the descriptor has ended.
func waitGone(ctx context.Context, fd int, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && ctx.Err() == nil; {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 200); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// startTime is field 22 of /proc/PID/stat. The second field, the program's name,
// is in parentheses and may itself hold spaces and parentheses.
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStartTime(string(data))
}

func parseStartTime(stat string) (uint64, error) {
	_, rest, found := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 {
		return 0, fmt.Errorf("unexpected process status %q", stat)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("the process has ended: %w", os.ErrNotExist)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
