//go:build !vm

package nodeplugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "azuredisk-node-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "azuredisk")
	if err := tree.Build(dir, "azuredisk"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return apiserver.Run(m)
}

// confine leaves the process in the test's cgroup.
func confine(*testing.T, *exec.Cmd) {}
