package machine

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/azuredisk-csi/azuredisk/playground/poll"
	"github.com/azuredisk-csi/azuredisk/playground/process"
)

// Run is the life of a machine that has booted: containerd, then kubelet and
// kube-proxy, each started again when it ends. It returns when the context ends.
func Run(ctx context.Context, log *slog.Logger) error {
	spec, err := ReadSpec("/")
	if err != nil {
		return fmt.Errorf("read the machine's specification: %w", err)
	}
	start := func(name, path string, args ...string) error {
		_, err := process.Start(process.Spec{
			Name:   name,
			Path:   path,
			Args:   args,
			LogDir: logDir,
		}, log)
		return err
	}
	if err := start("containerd", filepath.Join(containerdBin, "containerd"), "--config",
		"/etc/containerd/config.toml"); err != nil {
		return err
	}
	if err := poll.Socket(ctx, containerdSocket, "containerd (see "+filepath.Join(logDir, "containerd.log")+")"); err != nil {
		return err
	}
	if err := start("kubelet", filepath.Join(kubernetesBin, "kubelet"),
		"--config", "/"+kubernetesConfigs+"/kubelet.yaml",
		"--kubeconfig", "/"+kubernetesConfigs+"/kubelet.conf",
		"--root-dir", kubeletDir,
		"--hostname-override", spec.Name,
		"--node-ip", spec.Address.String(),
		"--node-labels", spec.labels()); err != nil {
		return err
	}
	if err := start("kube-proxy", filepath.Join(kubernetesBin, "kube-proxy"),
		"--config", "/"+kubernetesConfigs+"/kube-proxy.yaml"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
