package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/process"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// Progress receives a line about each step.
type Progress func(format string, args ...any)

var errInterrupted = errors.New("interrupted")

// Up brings a playground up and returns when it is ready. If that fails, or the
// context ends, everything is taken down again. What an earlier playground left in
// the state folder is cleaned up first; one that is up must not be there.
func Up(ctx context.Context, dir state.Dir, opts state.Options, progress Progress) (*Cluster, error) {
	if err := os.MkdirAll(string(dir), 0o755); err != nil {
		return nil, err
	}
	if err := refuseIfUp(dir); err != nil {
		return nil, err
	}
	if err := Clean(dir); err != nil {
		return nil, fmt.Errorf("clean up after an earlier playground: %w", err)
	}
	if err := os.RemoveAll(dir.Logs()); err != nil {
		return nil, err
	}
	if err := adopt(dir, opts.Programs, "azuresim"); err != nil {
		return nil, err
	}
	if err := state.WriteJSON(dir.Options(), opts); err != nil {
		return nil, err
	}
	if err := startSupervisor(dir); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	err := follow(ctx, dir, progress)
	if err == nil {
		return Attach(ctx, dir)
	}
	if ctx.Err() != nil {
		progress("interrupted: taking everything down")
		err = errInterrupted
	}
	return nil, errors.Join(err, Down(context.WithoutCancel(ctx), dir, progress))
}

// refuseIfUp fails if the playground of this state folder is up.
func refuseIfUp(dir state.Dir) error {
	_, alive, err := dir.Supervisor()
	if err == nil && alive {
		err = fmt.Errorf("a playground is up already in %s; another one needs a state folder of its own (--state)", dir)
	}
	return err
}

// adopt gives the playground its own link to a program, or copy of it, because the
// cache forgets what is old while a playground may start it again at any time.
func adopt(dir state.Dir, programs map[string]string, name string) error {
	own := dir.Program(name)
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		return err
	}
	if err := os.Link(programs[name], own); err != nil {
		data, err := os.ReadFile(programs[name])
		if err != nil {
			return err
		}
		if err := os.WriteFile(own, data, 0o755); err != nil {
			return err
		}
	}
	programs[name] = own
	return nil
}

// startSupervisor starts the supervisor as the only child of the first process of
// new PID and mount namespaces. That process waits until it has been recorded, so
// that no playground runs without a record.
func startSupervisor(dir state.Dir) error {
	if err := os.MkdirAll(dir.Logs(), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(dir.Logs("supervisor.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	waiting, recorded, err := os.Pipe()
	if err != nil {
		return err
	}
	defer waiting.Close()
	defer recorded.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "supervisor-init", "--state", string(dir))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = waiting, out, out
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // so that its end is seen while this process lives
	id, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := state.WriteJSON(dir.Record(), id); err != nil {
		return err
	}
	_, err = recorded.WriteString("recorded\n")
	return err
}

// follow passes the supervisor's progress on until the playground is ready. It fails
// if that is not to be.
func follow(ctx context.Context, dir state.Dir, progress Progress) error {
	client := newClient(dir)
	response, err := connect(ctx, dir, client)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for decoder := json.NewDecoder(response.Body); ; {
		var event state.Event
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("follow the supervisor's progress (see %s): %w", dir.Logs("supervisor.log"), err)
		}
		progress("%s", event.Message)
	}
	c, err := Attach(ctx, dir)
	if err != nil {
		return fmt.Errorf("the supervisor ended (see %s): %w", dir.Logs("supervisor.log"), err)
	}
	return c.Ready(ctx)
}

// connect waits until the supervisor listens.
func connect(ctx context.Context, dir state.Dir, client *http.Client) (*http.Response, error) {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://playground/events", nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(request)
		if err == nil {
			return response, nil
		}
		if _, alive, recordErr := dir.Supervisor(); recordErr != nil || !alive {
			return nil, fmt.Errorf("the supervisor ended (see %s)", filepath.Join(dir.Logs("supervisor.log")))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
