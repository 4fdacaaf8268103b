package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// program is a program of the driver that runs.
type program struct {
	cmd     *exec.Cmd
	log     string
	began   time.Time
	exited  chan struct{}
	stopped bool
}

// start starts a program of the project; it ends with the test. The driver's programs use as much
// memory as in a container with the limit that docs/explanation/performance.md recommends for nodes
// (heapShare in cmd/azuredisk): 1Gi for a large cluster, half for a smaller one, and of that the
// share; 0 for a program without a limit.
func start(t testing.TB, nodes int, share float64, name, program_ string, arguments ...string) *program {
	t.Helper()
	logs := filepath.Join(tree.Root(), "out", "bench-scale")
	must(t, os.MkdirAll(logs, 0o755))
	p := &program{log: filepath.Join(logs, name+".log"), exited: make(chan struct{})}
	out, err := os.Create(p.log)
	must(t, err)
	defer out.Close()
	p.cmd = exec.Command(filepath.Join(binaries(t), program_), arguments...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if limitMiB := 512 * share; limitMiB > 0 {
		if nodes > 2000 {
			limitMiB *= 2
		}
		p.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%dMiB", int(limitMiB*0.6)))
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p.began = time.Now()
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the tests that need it see that it has ended
		close(p.exited)
	}()
	t.Cleanup(func() { p.stop(t) })
	return p
}

var built string

// binaries builds the programs once.
func binaries(t testing.TB) string {
	t.Helper()
	if built == "" {
		dir := filepath.Join(tree.Root(), "bin")
		must(t, tree.Build(dir, "azuredisk", "azuresim"))
		built = dir
	}
	return built
}

// stop ends the program.
func (p *program) stop(t testing.TB) {
	t.Helper()
	if p.stopped {
		return
	}
	p.stopped = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
		t.Errorf("%s did not end within 30 s (log: %s)", p.cmd.Args, p.log)
	}
}

// pollEvery is how often a condition is looked at whose answer costs the measured programs little.
const pollEvery = 20 * time.Millisecond

// await waits until condition holds, and returns the time since the program was started.
func (p *program) await(t testing.TB, what string, every, limit time.Duration, condition func() bool) time.Duration {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		if condition() {
			return time.Since(p.began)
		}
		select {
		case <-p.exited:
			t.Fatalf("%s ended before: %s (log: %s)", p.cmd.Args, what, p.log)
		case <-time.After(every):
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %s (log: %s)", p.cmd.Args, limit, what, p.log)
		}
	}
}

// cpu is the processor time that the program has used.
func (p *program) cpu(t testing.TB) time.Duration {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	must(t, err)
	var sum time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		must(t, err)
		sum += time.Duration(ns)
	}
	if sum == 0 {
		t.Fatalf("%s uses no processor time", p.cmd.Args)
	}
	return sum
}

// memory is what the program has resident, now and at most so far, in MiB.
func (p *program) memory(t testing.TB) (now, peak int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "VmRSS:" && fields[0] != "VmHWM:" {
			continue
		}
		kib, err := strconv.Atoi(fields[1])
		must(t, err)
		if fields[0] == "VmRSS:" {
			now = kib >> 10
		} else {
			peak = kib >> 10
		}
	}
	return now, peak
}

func (p *program) said(t testing.TB, text string) bool {
	t.Helper()
	log, err := os.ReadFile(p.log)
	must(t, err)
	return bytes.Contains(log, []byte(text))
}

// answers reports whether an address answers a GET with 200.
func answers(url string) bool {
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// quantile of times, in milliseconds.
func quantile(times []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(times))
	return milliseconds(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// report writes what was measured to out/bench-scale, and to the log.
func report(t testing.TB, name string, result any) {
	t.Helper()
	raw, err := json.MarshalIndent(result, "", "  ")
	must(t, err)
	dir := filepath.Join(tree.Root(), "out", "bench-scale")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, name+".json"), append(raw, '\n'), 0o644))
	fmt.Printf("%s: %s\n", name, raw)
}
