package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEnterFindsTheProgramsOfTheMachine runs the part of Enter's command line that comes after nsenter, which needs a machine.
func TestEnterFindsTheProgramsOfTheMachine(t *testing.T) {
	t.Parallel()
	command := enterMachine(os.Getpid())
	i := slices.Index(command, "--")
	if i < 0 || i+1 == len(command) {
		t.Fatalf("got command line %q, want one that sets the environment after the options of nsenter", command)
	}
	out, err := exec.Command(command[i+1], append(command[i+2:], "printenv", "PATH")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := filepath.SplitList(strings.TrimSpace(string(out)))
	for program, want := range map[string]string{"ctr": "/opt/cni/bin", "kubelet": "/opt/playground/kubernetes", "bash": "/usr/bin"} {
		if !slices.Contains(got, want) {
			t.Errorf("got PATH %q, want one with the folder of %s, %s", got, program, want)
		}
	}
}
