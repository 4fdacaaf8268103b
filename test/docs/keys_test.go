package docs

import (
	"errors"
	"go/ast"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var keyName = regexp.MustCompile(`^(Annotation|Label|Taint|Finalizer)[A-Z]`)

// TestThePageOnKeysHasEveryKey compares the page with the constants of api/v1.
func TestThePageOnKeysHasEveryKey(t *testing.T) {
	var want []string
	for _, file := range goFiles(t) {
		if filepath.Dir(file) != "api/v1" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		visit(t, file, func(n ast.Node) {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) == 0 || !keyName.MatchString(v.Names[0].Name) {
				return
			}
			if sum, ok := v.Values[0].(*ast.BinaryExpr); ok {
				end, err := strconv.Unquote(sum.Y.(*ast.BasicLit).Value)
				expect.Must(t, err)
				want = append(want, apiv1.GroupName+end)
			}
		})
	}
	var got []string
	for _, m := range regexp.MustCompile("`("+regexp.QuoteMeta(apiv1.GroupName)+"/[a-z-]+)`").FindAllStringSubmatch(
		read(t, "docs/reference/keys.md"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("got keys %q on the page, want %q", got, want)
	}
}

// TestNoOldNameIsLeft finds public names that were changed before the first release. renamed.txt has an
// old name and the new one on each line.
func TestNoOldNameIsLeft(t *testing.T) {
	var names []string
	for line := range strings.Lines(read(t, "test/docs/renamed.txt")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, regexp.QuoteMeta(strings.Fields(line)[0]))
		}
	}
	// A name may begin with a dot and end with a colon, which "\\b" would not take.
	old := `(^|[^A-Za-z0-9_./-])(` + strings.Join(names, "|") + `)($|[^A-Za-z0-9_-])`
	cmd := exec.CommandContext(t.Context(), "grep", "-rnIE", "--exclude-dir=.git", "--exclude-dir=out", "--exclude-dir=bin",
		"--exclude=CHANGELOG.md", "--exclude=renamed.txt", old, ".")
	cmd.Dir = tree.Root()
	found, err := cmd.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 1 { // 1: nothing was found
		expect.Must(t, err)
	}
	for line := range strings.Lines(string(found)) {
		t.Errorf("an old name is left: %.200s", line)
	}
}
