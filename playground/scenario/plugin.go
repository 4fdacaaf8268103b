package scenario

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// Plugin runs `kubectl azuredisk` with these arguments on the playground's cluster, and returns what it prints.
func (e *Environment) Plugin(ctx context.Context, args ...string) ([]byte, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(own), "kubectl-azuredisk"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Cluster.Kubeconfig())
	return cmd.Output()
}
