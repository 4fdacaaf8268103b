package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/playground/source"
	"github.com/azuredisk-csi/azuredisk/playground/steps"
)

// guides are the guides to an installation, with their sections that have commands, in order.
var guides = map[string][]string{
	"install-on-aks": {"Create a cluster", "Build the image", "Give the controller an identity", "Install the driver",
		movePod},
	"trial-on-aks": {"Create a node pool", "Give the controller an identity", "Install the trial", movePod, "Lose a node",
		"Remove the trial"},
	"install-self-managed": {"Build the image", "Install the driver", movePod},
	"upgrade":              {"Before", "Upgrade", "Roll back"},
	"uninstall":            {"Uninstall the driver"},
	repair:                 {"Find the node and the device", "Repair", "Let the pod start"},
}

const (
	movePod = "Move a pod"
	repair  = "repair-a-filesystem"
	// pauseImage is the image of the guides' pod.
	pauseImage = "registry.k8s.io/pause:3.10"
	// variables is the file that takes the shell variables from one block to the next.
	variables = ".variables"
)

// Guides are the names of the guides that Follow knows.
func Guides() []string { return slices.Sorted(maps.Keys(guides)) }

// Follow runs the commands of a guide one block after the other, in the way of Run. Where Azure's
// command line, a registry or a cloud provider acts, programs of the same name stand in: az answers
// with what this playground has, make gives the image to the nodes under the name that it would
// have in the registry, and helm gets the images of the sidecars and, for AKS, Azure's endpoint.
func Follow(ctx context.Context, o Options, name string) (*steps.Report, error) {
	if onAKS := strings.HasSuffix(name, "-on-aks"); onAKS && o.Cluster.Options.Profile == "" {
		return nil, fmt.Errorf("the guide %s needs a cluster of AKS: playground up --profile aks", name)
	}
	j, err := prepare(ctx, o, name+".md")
	if err != nil {
		return nil, fmt.Errorf("prepare to follow the guide %s: %w", name, err)
	}
	defer os.RemoveAll(j.dir)
	if err := j.standIn(ctx, name); err != nil {
		return nil, fmt.Errorf("prepare to follow the guide %s: %w", name, err)
	}
	return j.report(ctx, name, j.sectionSteps(name))
}

// sectionSteps are the sections of the guide. While the driver is upgraded, a pod uses a volume;
// before a filesystem is repaired, a pod waits for it.
func (j *journey) sectionSteps(name string) []steps.Step {
	var sections []steps.Step
	for _, section := range guides[name] {
		sections = append(sections, steps.Step{Name: section, Run: func(ctx context.Context) error {
			return j.followBlocks(ctx, section)
		}})
	}
	deleteUser := func(ctx context.Context) error {
		_, err := j.kubectl(ctx, "delete", "pod/user", "persistentvolumeclaim/user", "--timeout=2m")
		return err
	}
	switch name {
	case repair:
		first := steps.Step{Name: "a pod waits for a damaged filesystem", Run: j.damage}
		last := steps.Step{Name: "clean up", Run: deleteUser}
		return slices.Concat([]steps.Step{first}, sections, []steps.Step{last})
	case "upgrade":
	default:
		return sections
	}
	var before string
	first := steps.Step{Name: "a pod uses a volume", Run: func(ctx context.Context) (err error) {
		if err := j.startUser(ctx); err != nil {
			return err
		}
		before, err = j.kubectl(ctx, userState...)
		return err
	}}
	last := steps.Step{Name: "the pod has run throughout", Run: func(ctx context.Context) error {
		after, err := j.kubectl(ctx, userState...)
		if err != nil || after != before {
			return errors.Join(fmt.Errorf("the pod's UID, restarts and condition: got %q, want %q as before", after, before), err)
		}
		return deleteUser(ctx)
	}}
	return slices.Concat([]steps.Step{first}, sections, []steps.Step{last})
}

var userState = []string{"get", "pod", "user", "--output",
	`jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount} {.status.conditions[?(@.type=="Ready")]}`}

// userManifest is a pod that uses a volume with a replica.
const userManifest = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: user}
spec:
  storageClassName: azuredisk-premium-zrs-replicas
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 4Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: user, image: ` + pauseImage + `, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: user}}]
`

// startUser starts the pod and waits until it runs.
func (j *journey) startUser(ctx context.Context) error {
	if err := j.apply(ctx, userManifest); err != nil {
		return err
	}
	_, err := j.kubectl(ctx, "wait", "pod/user", "--for=condition=Ready", "--timeout=3m")
	return err
}

// damage takes the root directory from the filesystem of the pod, while no node has it mounted, and
// starts the pod again. `e2fsck -p` does not repair that.
func (j *journey) damage(ctx context.Context) error {
	if err := j.startUser(ctx); err != nil {
		return err
	}
	node, err := j.kubectl(ctx, "get", "pod", "user", "--output", "jsonpath={.spec.nodeName}")
	if err != nil {
		return err
	}
	const file = "/run/damaged-device"
	find := `awk '$2 ~ "/disk.csi.azure.com/.*/globalmount$" {print $1}' /proc/mounts >` + file
	if err := j.onNode(ctx, node, find); err != nil {
		return err
	}
	if _, err := j.kubectl(ctx, "delete", "pod/user", "--timeout=2m"); err != nil {
		return err
	}
	if err := j.onNode(ctx, node, `device=$(cat `+file+`); rm `+file+`
while grep -q "^$device " /proc/mounts; do sleep 0.2; done
until [ "$(blockdev --getro "$device")" = 1 ]; do sleep 0.2; done
blockdev --setrw "$device"
debugfs -w -R 'clri <2>' "$device"
debugfs -w -R 'ssv state 2' "$device"
blockdev --flushbufs "$device"
blockdev --setro "$device"
if e2fsck -n "$device"; then exit 1; fi`); err != nil {
		return err
	}
	if err := j.apply(ctx, userManifest); err != nil {
		return err
	}
	j.env = append(j.env, "POD=user", "NAMESPACE=default")
	return j.shell(ctx, `until kubectl get event --field-selector involvedObject.name=user,reason=FailedMount \
    --output jsonpath='{.items[*].message}' | grep -q 'repair it manually'; do sleep 1; done`)
}

func (j *journey) followBlocks(ctx context.Context, section string) error {
	blocks, err := j.guide.Section(section)
	if err != nil {
		return err
	}
	for _, block := range blocks {
		var replica string
		moves := strings.Contains(block, "kubectl cordon")
		if moves {
			if replica, err = j.kubectl(ctx, "get", "--namespace", "azure-disk-csi", "azvolumeattachments", "--output",
				`jsonpath={.items[?(@.spec.role=="Replica")].spec.nodeName}`); err != nil {
				return err
			}
		}
		if err := j.shell(ctx, "if [ -e "+variables+" ]; then . ./"+variables+"; fi\nset -o allexport\n"+block+"\nexport -p >"+
			variables); err != nil {
			return fmt.Errorf("run\n%s%w", block, err)
		}
		if !moves {
			continue
		}
		node, err := j.kubectl(ctx, "get", "pod", "demo-0", "--output", "jsonpath={.spec.nodeName}")
		if err != nil {
			return err
		}
		mode, err := j.mode(ctx)
		if err != nil {
			return err
		}
		// The kube-scheduler of a playground does not call an extender in the host's network of a
		// node.
		if replica == "" || mode == "webhook" && node != replica {
			return fmt.Errorf("after the move: got the pod on %s, want it on %q, which had the replica", node, replica)
		}
	}
	return nil
}

// mode is the scheduler mode of the release.
func (j *journey) mode(ctx context.Context) (string, error) {
	text, err := j.output(ctx, "", filepath.Join(j.dir, "bin", "helm"), "get", "values", "azuredisk", "--namespace",
		"azure-disk-csi", "--all", "--output", "json")
	var values struct{ Scheduler struct{ Mode string } }
	if err != nil {
		return "", err
	}
	return values.Scheduler.Mode, json.Unmarshal([]byte(text), &values)
}

// standIn puts programs into the guide's folder that do here what they do elsewhere at Azure or in
// a registry, and the files of the project.
func (j *journey) standIn(ctx context.Context, name string) error {
	root, err := source.Root()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == "bin" || entry.Name() == "charts" || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if err := os.Symlink(filepath.Join(root, entry.Name()), filepath.Join(j.dir, entry.Name())); err != nil {
			return err
		}
	}
	values, azureJSON, err := j.Cluster.DriverValues(ctx)
	if err != nil {
		return err
	}
	// The guide has its own.
	delete(values, "image")
	delete(values, "scheduler")
	if strings.HasSuffix(name, "-on-aks") {
		if err := j.trustDirectory(ctx); err != nil {
			return err
		}
		values["cloud"] = map[string]any{"caConfigMap": directoryCA}
		values["controller"] = map[string]any{"extraEnv": []map[string]any{
			{"name": "AZURE_RESOURCE_MANAGER_ENDPOINT", "value": azureJSON["resourceManagerEndpoint"]},
		}}
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	if name == "install-self-managed" {
		if err := j.makeControlPlane(ctx, azureJSON); err != nil {
			return err
		}
	}
	helm, err := j.Cluster.Program("helm")
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(j.dir, "bin", "helm")); err != nil {
		return err
	}
	playground, err := os.Executable()
	if err != nil {
		return err
	}
	var nodes []string
	for _, node := range j.Cluster.Plan.Nodes {
		nodes = append(nodes, node.Name)
		if err := j.onNode(ctx, node.Name,
			"ctr --namespace k8s.io images tag --force "+j.Cluster.Options.Pause.Ref+" "+pauseImage); err != nil {
			return err
		}
	}
	files := map[string]string{
		"playground-values.yaml": string(text),
		"bin/helm": fmt.Sprintf("case $1 in install|upgrade) set -- \"$@\" --values %s/playground-values.yaml ;; esac\nexec %s \"$@\"\n",
			j.dir, helm),
		"bin/make": fmt.Sprintf("[ \"$1 $2\" = 'image push' ] || { echo \"no target $*\" >&2; exit 1; }\nshift 2\nexport \"$@\"\n"+
			"for node in %s; do %s --state %s enter \"$node\" ctr --namespace k8s.io images tag --force %s \"$REGISTRY/azuredisk:$VERSION\"; done\n",
			strings.Join(nodes, " "), playground, j.Cluster.Dir, j.Cluster.Options.Driver.Ref),
		"bin/az": fmt.Sprintf("PLAYGROUND_STATE=%s exec %s az %s \"$@\"\n", j.Cluster.Dir, playground, j.dir),
	}
	var failed []error
	for file, content := range files {
		if strings.HasPrefix(file, "bin/") {
			content = "#!/usr/bin/env bash\nset -euo pipefail\n" + content
		}
		failed = append(failed, os.WriteFile(filepath.Join(j.dir, file), []byte(content), 0o700))
	}
	return errors.Join(failed...)
}

// directoryCA is the ConfigMap with the CA of azuresim's directory.
const directoryCA = "directory-ca"

// trustDirectory puts the CA of azuresim's directory where the driver finds it. Azure's own is in
// every system's bundle.
func (j *journey) trustDirectory(ctx context.Context) error {
	ca, err := os.ReadFile(j.Cluster.Dir.DirectoryCA())
	if err != nil {
		return err
	}
	type object = map[string]any
	for _, o := range []object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "azure-disk-csi"}},
		{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": directoryCA, "namespace": "azure-disk-csi"},
			"data": object{"ca.crt": string(ca)},
		},
	} {
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if err := j.apply(ctx, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// makeControlPlane gives two nodes what a control plane's have: the label, and the file with the
// credential.
func (j *journey) makeControlPlane(ctx context.Context, azureJSON map[string]any) error {
	credential, err := json.Marshal(azureJSON)
	if err != nil {
		return err
	}
	for _, node := range j.Cluster.Plan.Nodes[:2] {
		if err := j.onNode(ctx, node.Name,
			fmt.Sprintf("mkdir -p /etc/kubernetes\ncat >/etc/kubernetes/azure.json <<'JSON'\n%s\nJSON\nchmod 600 /etc/kubernetes/azure.json", credential)); err != nil {
			return err
		}
		if _, err := j.kubectl(ctx, "label", "node", node.Name, "node-role.kubernetes.io/control-plane=",
			"--overwrite"); err != nil {
			return err
		}
	}
	return nil
}
