package hypervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The agent is a child process that does everything which makes the kernel ask the FUSE file
// system: opening its files, and binding, resizing and clearing loop devices.
//
// The process that serves a FUSE file system must never wait for it. A thread that waits for an
// answer cannot be killed, and while it lives the process's descriptors stay open, /dev/fuse among
// them; so when such a process is killed, requests get neither an answer nor an error, and the loop
// driver's locks are held for ever. With the waiting in another process that has no /dev/fuse, the
// death of the hypervisor ends the FUSE connection, and every wait for it.

const (
	// agentName is the agent's argv[0], by which the program finds out that it is to be the agent.
	agentName = "azuresim-loop-agent"
	agentRoot = 3 // the agent's descriptor of the FUSE file system; 4 is the state directory's lock
)

// init runs the agent, which is the running program under another name, so it must be recognised
// before main.
func init() {
	if os.Args[0] != agentName {
		return
	}
	// Ctrl-C at a terminal is for the hypervisor; it needs the agent to clean up.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	runAgent(os.Stdin, os.Stdout)
	os.Exit(0)
}

type loopRequest struct {
	ID     uint64 `json:"id"`
	Op     string `json:"op"`
	File   string `json:"file"` // name in the FUSE file system; for sweep, how the names begin
	Device string `json:"device,omitempty"`
}

type loopAnswer struct {
	ID      uint64   `json:"id"`
	Device  string   `json:"device,omitempty"`
	Failure *failure `json:"failure,omitempty"`
}

// runAgent answers requests until its input ends, and then waits for those in progress.
func runAgent(in io.Reader, out io.Writer) {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	var answering sync.Mutex
	var group sync.WaitGroup
	defer group.Wait()
	for {
		var request loopRequest
		if decoder.Decode(&request) != nil {
			return
		}
		group.Go(func() {
			answer := loopAnswer{ID: request.ID}
			var err error
			if answer.Device, err = request.perform(); err != nil {
				answer.Failure = &failure{Kind: kindOf(err), Message: err.Error()}
			}
			answering.Lock()
			defer answering.Unlock()
			// Without a hypervisor the answer is not needed; the next hypervisor cleans up.
			_ = encoder.Encode(answer)
		})
	}
}

// perform does the request. It runs in the agent.
func (r loopRequest) perform() (device string, err error) {
	switch r.Op {
	case "bind":
		file, err := openFUSE(r.File)
		if err != nil {
			return "", err
		}
		defer file.Close()
		return bindLoop(file)
	case "resize":
		file, err := openFUSE(r.File)
		if err != nil {
			return "", err
		}
		defer file.Close()
		// The kernel believes to know the size, until it is asked for.
		if _, err := file.Stat(); err != nil {
			return "", err
		}
		return "", resizeLoop(r.Device)
	case "clear":
		return "", clearLoop(r.Device, r.File)
	case "sweep":
		_, err := sweepLoops(r.File)
		return "", err
	}
	return "", fmt.Errorf("%w: operation %q", ErrInvalid, r.Op)
}

func openFUSE(name string) (*os.File, error) {
	fd, err := unix.Openat(agentRoot, name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open FUSE file %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// errAgentGone says that the agent ended before it answered.
var errAgentGone = errors.New("loop agent ended")

// agent is the hypervisor's side: it keeps an agent process running.
type agent struct {
	// inherited are the descriptors of the FUSE file system and of the state directory's lock:
	// while an agent lives, even one whose hypervisor was killed, no other hypervisor takes the
	// directory.
	inherited []*os.File

	mu      sync.Mutex
	process *agentProcess
}

// call has the request done. An agent that was killed is replaced.
func (a *agent) call(request loopRequest) (string, error) {
	device, err := a.try(request)
	if !errors.Is(err, errAgentGone) {
		return device, err
	}
	if request.Op == "bind" { // perhaps it did bind
		if _, err := a.try(loopRequest{Op: "sweep", File: request.File}); err != nil {
			return "", err
		}
	}
	return a.try(request)
}

func (a *agent) try(request loopRequest) (string, error) {
	process, err := a.running()
	if err != nil {
		return "", err
	}
	return process.call(request)
}

func (a *agent) running() (*agentProcess, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil {
		select {
		case <-a.process.gone:
		default:
			return a.process, nil
		}
	}
	process, err := startAgent(a.inherited)
	if err != nil {
		return nil, fmt.Errorf("start loop agent: %w", err)
	}
	a.process = process
	return process, nil
}

// close ends the agent and returns when it is gone.
func (a *agent) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil {
		_ = a.process.stdin.Close()
		<-a.process.gone
	}
}

// agentProcess is one agent.
type agentProcess struct {
	stdin io.WriteCloser
	gone  chan struct{} // closed when the process has ended

	mu      sync.Mutex // guards what follows
	encoder *json.Encoder
	serial  uint64
	waiting map[uint64]chan loopAnswer
}

func startAgent(inherited []*os.File) (*agentProcess, error) {
	command := exec.Command("/proc/self/exe")
	command.Args = []string{agentName}
	command.ExtraFiles = inherited
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &agentProcess{
		stdin:   stdin,
		gone:    make(chan struct{}),
		encoder: json.NewEncoder(stdin),
		waiting: map[uint64]chan loopAnswer{},
	}
	go func() {
		defer close(p.gone)
		p.receive(json.NewDecoder(stdout))
		_ = command.Wait() // its status says nothing that its callers do not see
	}()
	return p, nil
}

// receive hands out all answers.
func (p *agentProcess) receive(decoder *json.Decoder) {
	for {
		var answer loopAnswer
		if decoder.Decode(&answer) != nil {
			return
		}
		p.mu.Lock()
		waiting := p.waiting[answer.ID]
		delete(p.waiting, answer.ID)
		p.mu.Unlock()
		if waiting != nil {
			waiting <- answer
		}
	}
}

func (p *agentProcess) call(request loopRequest) (string, error) {
	answered := make(chan loopAnswer, 1)
	p.mu.Lock()
	p.serial++
	request.ID = p.serial
	p.waiting[request.ID] = answered
	err := p.encoder.Encode(request)
	p.mu.Unlock()
	if err != nil {
		<-p.gone
		return "", errAgentGone
	}
	select {
	case answer := <-answered:
		if answer.Failure != nil {
			return "", &remoteError{kind: kinds[answer.Failure.Kind], message: answer.Failure.Message}
		}
		return answer.Device, nil
	case <-p.gone:
		return "", errAgentGone
	}
}
