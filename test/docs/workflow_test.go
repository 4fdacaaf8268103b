package docs

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

var (
	pinnedAction = regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)
	onlyMake     = regexp.MustCompile(`^make ([a-z-]+) VERSION="\$\{GITHUB_REF_NAME#v\}"$`)
)

// TestTheReleaseWorkflowRunsTargetsAndNothingElse: what the workflow does can be done everywhere.
func TestTheReleaseWorkflowRunsTargetsAndNothingElse(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Uses, Run string }
		}
	}
	expect.Must(t, yaml.Unmarshal([]byte(read(t, ".github/workflows/release.yaml")), &workflow))
	makefile, targets := read(t, "Makefile"), 0
	for name, job := range workflow.Jobs {
		for i, step := range job.Steps {
			run := onlyMake.FindStringSubmatch(step.Run)
			switch {
			case step.Run == "" && pinnedAction.MatchString(step.Uses):
			case run != nil && step.Uses == "" && strings.Contains(makefile, "\n"+run[1]+": "):
				targets++
			default:
				t.Errorf("job %s, step %d: got %+v, want an action with its SHA, or one target of the Makefile", name, i+1, step)
			}
		}
	}
	if targets != 2 {
		t.Errorf("targets that the workflow runs: got %d, want release and publish", targets)
	}
}
