package steps_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/steps"
)

func TestAReportCountsAndSaysWhy(t *testing.T) {
	var lines strings.Builder
	r := steps.NewReport(time.Minute, func(format string, _ ...any) { lines.WriteString(format[:4]) })
	holds := steps.Step{Name: "holds", Run: func(context.Context) error { return nil }}
	fails := steps.Step{Name: "does not", Run: func(context.Context) error { return errors.New("reason") }}
	if r.Run(t.Context(), "topic", holds, fails, holds) || r.Passed != 1 || r.Failed != 1 || r.Tests[1].Error != "reason" ||
		lines.String() != "ok  FAIL" {
		t.Errorf("got %+v, printed %q, want one passed, one failed with its reason, and the end there", r.Tests, lines.String())
	}
	path, err := r.Write(t.TempDir(), "report.json")
	if err != nil || filepath.Base(path) != "report.json" {
		t.Errorf("written to %q, %v, want report.json", path, err)
	}
}
