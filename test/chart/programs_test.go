package chart_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/azuredisk-csi/azuredisk/internal/config"
)

// containers of a workload by name, with their arguments.
func containers(t testing.TB, workload *unstructured.Unstructured) map[string][]string {
	t.Helper()
	list, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	must(t, err)
	args := map[string][]string{}
	for _, item := range list {
		container := item.(map[string]any)
		texts, _, err := unstructured.NestedStringSlice(container, "args")
		must(t, err)
		args[container["name"].(string)] = texts
	}
	return args
}

type settings interface {
	AddFlags(*pflag.FlagSet)
	Validate() error
}

func TestOurProgramsTakeTheArgumentsThatTheChartGives(t *testing.T) {
	t.Parallel()
	for _, values := range valueFiles(t) {
		list := objects(t, render(t, "-f", values))
		for _, c := range []struct {
			kind, component, container string
			settings                   settings
		}{
			{"Deployment", "controller", "controller", &config.Controller{}},
			{"DaemonSet", "node", "node", &config.Node{}},
			{"Deployment", "scheduler", "extender", &config.Scheduler{}},
		} {
			if c.component == "scheduler" && strings.Contains(values, "minimal") {
				continue // it turns the scheduler off
			}
			args := containers(t, find(t, list, c.kind, fullname(values)+"-"+c.component))[c.container]
			flags := pflag.NewFlagSet(c.component, pflag.ContinueOnError)
			c.settings.AddFlags(flags)
			if err := flags.Parse(args[1:]); err != nil {
				t.Errorf("%s: %s: %v", values, c.container, err)
			}
			if err := c.settings.Validate(); err != nil {
				t.Errorf("%s: %s: %v", values, c.container, err)
			}
		}
	}
}

var flagName = regexp.MustCompile(`(?m)^\s+-{1,2}([a-z0-9][a-z0-9-]*)`)

func TestTheSidecarsHaveTheFlagsThatTheChartGives(t *testing.T) {
	t.Parallel()
	list := objects(t, render(t, "-f", filepath.Join("values", "everything.yaml")))
	for name, args := range containers(t, find(t, list, "Deployment", "disks-controller")) {
		if name == "controller" {
			continue
		}
		help, _ := exec.Command(program(t, name), "--help").CombinedOutput() // exits with 2 after its help
		known := map[string]bool{"v": true}
		for _, match := range flagName.FindAllStringSubmatch(string(help), -1) {
			known[match[1]] = true
		}
		if len(known) < 10 {
			t.Fatalf("%s --help said: %s", name, help)
		}
		for _, arg := range args {
			flag, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if !known[flag] {
				t.Errorf("%s has no flag --%s", name, flag)
			}
		}
	}
}
