package migration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// valuesFile is the file of values that the guide has its reader write.
const valuesFile = "azuredisk-values.yaml"

// follow runs the blocks of a section. When the guide has written the values, those that this
// cluster needs besides are added to them, as a reader would: images, addresses, and the namespace
// with a pod that names its disk.
func (j *journey) follow(ctx context.Context, heading string) error {
	blocks, err := j.guide.Section(heading)
	if err != nil {
		return err
	}
	for _, block := range blocks {
		if err := j.shell(ctx, block); err != nil {
			return fmt.Errorf("run\n%s%w", block, err)
		}
		if strings.Contains(block, ">"+valuesFile) {
			if err := j.addValues(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *journey) addValues(ctx context.Context) error {
	values, _, err := j.Cluster.DriverValues(ctx)
	if err != nil {
		return err
	}
	values["inlineDisks"] = map[string]any{"namespaces": []string{namespace}}
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(j.dir, valuesFile), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(text)
	return err
}

// shell runs a script as a reader's shell would that stops at errors.
func (j *journey) shell(ctx context.Context, script string) error {
	_, err := j.output(ctx, "", "bash", "-euo", "pipefail", "-c", script)
	return err
}

func (j *journey) kubectl(ctx context.Context, args ...string) (string, error) {
	return j.output(ctx, "", filepath.Join(j.dir, "bin", "kubectl"), args...)
}

func (j *journey) apply(ctx context.Context, manifest string) error {
	_, err := j.output(ctx, manifest, filepath.Join(j.dir, "bin", "kubectl"), "apply", "--filename", "-")
	return err
}

// output runs a program in the guide's folder and returns what it printed.
func (j *journey) output(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = j.dir, j.env, strings.NewReader(input)
	var stdout, both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &both
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", filepath.Base(name), err, stdout.String(), both.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}

// onNode runs a script on a node.
func (j *journey) onNode(ctx context.Context, node, script string) error {
	enter, err := j.Cluster.Enter(ctx, node)
	if err != nil {
		return err
	}
	_, err = j.output(ctx, "", enter[0], append(enter[1:], "bash", "-euo", "pipefail", "-c", script)...)
	return err
}

// probe runs the probe in a pod.
func (j *journey) probe(ctx context.Context, pod string, args ...string) (string, error) {
	return j.kubectl(ctx, append([]string{"exec", "--namespace", namespace, pod, "--", "/probe"}, args...)...)
}
