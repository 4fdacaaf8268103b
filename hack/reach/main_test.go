package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goFile = `package a

type T struct{}

func (t *T) Both(x bool) string {
	if x {
		return "x"
	}
	return ""
}

func Never() int { return 1 }

func Fails(err error) error { return fmt.Errorf("fails: %w", err) }
`

// Never, Fails and one block of T.Both are not run.
const profile = `mode: set
github.com/azuredisk-csi/azuredisk/internal/a/a.go:5.33,6.7 1 1
github.com/azuredisk-csi/azuredisk/internal/a/a.go:6.7,8.3 1 0
github.com/azuredisk-csi/azuredisk/internal/a/a.go:9.2,9.11 1 1
github.com/azuredisk-csi/azuredisk/internal/a/a.go:12.19,12.29 1 0
github.com/azuredisk-csi/azuredisk/internal/a/a.go:14.30,14.68 1 0
`

func TestReport(t *testing.T) {
	t.Parallel()
	const never = "internal/a/a.go Never: "
	for name, test := range map[string]struct {
		reasons string
		missing int
		err     string
		lacks   string
	}{
		"no reasons":        {"", 2, "", ""},
		"one reason":        {never + "# nothing calls it\n", 1, "", never},
		"both":              {never + "# nothing calls it\ninternal/a/a.go T.Both # as well\n", 0, "", "T.Both: return"},
		"one that is old":   {"internal/a/a.go Gone # it was there\n", 2, "begins with", ""},
		"one without words": {never + "\n", 0, "has no reason", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for path, text := range map[string]string{
				"internal/a/a.go": goFile, "profile": profile, "reasons": test.reasons,
			} {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			missing, err := report(&out, dir, filepath.Join(dir, "profile"), filepath.Join(dir, "reasons"))
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got error %v, want %q", err, test.err)
			}
			if missing != test.missing || test.lacks != "" && strings.Contains(out.String(), test.lacks) {
				t.Errorf("got %d without a reason, want %d:\n%s", missing, test.missing, out.String())
			}
			if test.err != "has no reason" && !strings.Contains(out.String(), "| internal/a | 5 | 40.0 % | 1 |") {
				t.Errorf("got\n%s\nwant two of five blocks reached, and one that passes an error on", out.String())
			}
		})
	}
}
