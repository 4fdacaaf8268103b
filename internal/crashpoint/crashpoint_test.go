package crashpoint_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const point = "a-point-along-the-way"

// passes is the program of testdata while it runs.
type passes struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	url string
}

func build(t *testing.T, tags string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "passes")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", tags, "-o", program,
		"./testdata/passes").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func run(t *testing.T, program string) *passes {
	t.Helper()
	p := &passes{t: t, cmd: exec.CommandContext(t.Context(), program)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewScanner(out)
	if !p.out.Scan() {
		t.Fatalf("the program said nothing: %v", p.out.Err())
	}
	p.url = p.out.Text()
	return p
}

// pass has the program pass the point, and reports whether it lives on.
func (p *passes) pass() bool {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Fatal(err)
	}
	return p.out.Scan()
}

func (p *passes) ask(method, query string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.url+"/crash"+query, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(body))
}

func TestWithTheTagAProcessDiesAtTheArmedPoint(t *testing.T) {
	t.Parallel()
	p := run(t, build(t, "crashpoints"))
	for range 2 {
		if !p.pass() {
			t.Fatal("it died at a point that was not armed")
		}
	}
	if status, body := p.ask(http.MethodGet, ""); status != http.StatusOK || body != `{"armed":null,"passed":[{"point":"`+point+
		`","times":2}]}` {
		t.Errorf("GET answers %d %s", status, body)
	}
	if status, _ := p.ask(http.MethodPost, ""); status != http.StatusBadRequest {
		t.Errorf("a POST without a point is answered with %d", status)
	}
	for _, other := range []string{"?point=another", "?point=" + point} {
		if status, body := p.ask(http.MethodPost, other); status != http.StatusNoContent {
			t.Fatalf("POST %s answers %d %s", other, status, body)
		}
	}
	if status, _ := p.ask(http.MethodDelete, ""); status != http.StatusNoContent || !p.pass() {
		t.Fatal("it died at a point that was disarmed again")
	}
	if _, body := p.ask(http.MethodPost, "?point="+point); body != "" {
		t.Fatal(body)
	}
	if p.pass() {
		t.Fatal("it lives on after the armed point")
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("it ended with %v", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v, not killed", exit)
	}
}

func TestWithoutTheTagThereIsNothing(t *testing.T) {
	t.Parallel()
	program := build(t, "")
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(point)) {
		t.Error("the name of the point is in the program")
	}
	p := run(t, program)
	if status, _ := p.ask(http.MethodPost, "?point="+point); status != http.StatusNotFound {
		t.Errorf("a point is armed with the answer %d", status)
	}
	if !p.pass() {
		t.Error("it died")
	}
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}
