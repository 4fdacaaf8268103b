package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"
)

// snapshotModule is the Go module that has the definitions of the snapshot resources.
const snapshotModule = "github.com/kubernetes-csi/external-snapshotter/client/v8"

// snapshotGroup is the API group whose definitions are taken; groups of snapshots are left out.
const snapshotGroup = "snapshot.storage.k8s.io"

//go:embed manifests/snapshot-controller.yaml
var snapshotController string

// installSnapshots gives the cluster what snapshots need besides a driver: the custom
// resources, which come with the pinned snapshot-controller's module, and the
// snapshot-controller.
func (c *Cluster) installSnapshots(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(c.Options.SnapshotCRDs, snapshotGroup+"_*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions of %s in %q: %w", snapshotGroup, c.Options.SnapshotCRDs, err)
	}
	args := []string{"apply", "--server-side"}
	for _, file := range files {
		args = append(args, "--filename", file)
	}
	if err := c.kubectl(ctx, nil, args...); err != nil {
		return err
	}
	// The driver's chart looks for the resources.
	err = c.kubectl(ctx, nil, "wait", "customresourcedefinitions", "--for=condition=Established",
		"--timeout="+(30*time.Second).String(),
		"volumesnapshots."+snapshotGroup, "volumesnapshotcontents."+snapshotGroup, "volumesnapshotclasses."+snapshotGroup)
	if err != nil {
		return err
	}
	var manifest bytes.Buffer
	values := map[string]string{"Image": c.Options.SnapshotController.Ref}
	if err := template.Must(template.New("snapshots").Parse(snapshotController)).Execute(&manifest, values); err != nil {
		return err
	}
	return c.kubectl(ctx, manifest.Bytes(), "apply", "--server-side", "--filename", "-")
}

// kubectl runs kubectl with the administrator's rights.
func (c *Cluster) kubectl(ctx context.Context, input []byte, args ...string) error {
	kubectl, err := c.Program("kubectl")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, kubectl, args...)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Dir.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}
