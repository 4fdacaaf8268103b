// Package pid1 is the first process of a PID namespace: it runs one program and
// buries the orphans. When that program ends, or when this process is killed, the
// kernel ends every process of the namespace.
package pid1

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Run starts the program, passes SIGTERM and SIGINT on to it, and returns its exit
// code when it has ended. Nothing else in the process may start or wait for
// processes: all children are waited for here.
func Run(path string, args ...string) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)

	child, err := os.StartProcess(path, append([]string{path}, args...), &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 1, fmt.Errorf("start %s: %w", path, err)
	}
	pid := child.Pid
	go func() {
		for s := range signals {
			_ = syscall.Kill(pid, s.(syscall.Signal)) // it may be gone already
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1, fmt.Errorf("wait for children: %w", err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}
