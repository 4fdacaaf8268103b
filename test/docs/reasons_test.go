package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var (
	reasonConstant = regexp.MustCompile(
		`(?m)^\s*(?:const )?(?:[rR]eason|Reachable|Probeable|Hold)[A-Z][A-Za-z]*\s+(?:[A-Za-z]+ )?= "([A-Z][A-Za-z]+)"`)
	reasonItem = regexp.MustCompile("(?m)^\\* ((?:`[A-Z][A-Za-z]+`(?:, )?)+):")
)

// TestThePageOnReasonsHasEveryReason compares it with the constants in the code, both ways. The
// reasons of volume health are in the guide on sharing.
func TestThePageOnReasonsHasEveryReason(t *testing.T) {
	const page, health = "docs/reference/reasons.md", "docs/guides/shared-volumes.md"
	text := read(t, page)
	var code strings.Builder
	reasons := map[string]bool{}
	for _, file := range goFiles(t) {
		of := strings.Split(file, "/")[0]
		if of != "internal" && of != "api" && of != "cmd" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(tree.Root(), file))
		expect.Must(t, err)
		code.Write(source)
		for _, m := range reasonConstant.FindAllStringSubmatch(string(source), -1) {
			reasons[m[1]] = true
		}
	}
	if len(reasons) < 60 {
		t.Fatalf("reasons in the code: got %d, want at least 60", len(reasons))
	}
	healthText := read(t, health)
	for reason := range reasons {
		if !strings.Contains(text, "`"+reason+"`") && !strings.Contains(healthText, "`"+reason+"`") {
			t.Errorf("%s: got no line about the reason %s, want one", page, reason)
		}
	}
	for _, m := range reasonItem.FindAllStringSubmatch(text, -1) {
		for _, item := range strings.Split(m[1], ", ") {
			if reason := strings.Trim(item, "`"); !strings.Contains(code.String(), `"`+reason+`"`) {
				t.Errorf("%s: got the reason %s, want only reasons that the code has", page, reason)
			}
		}
	}
}
