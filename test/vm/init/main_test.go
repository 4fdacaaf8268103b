package main

import (
	"strings"
	"testing"
)

func TestATestThatDidNotRunAndPassIsAFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ output, want string }{
		"all passed":      {"=== RUN   TestA\n--- PASS: TestA (0.01s)\n--- PASS: TestB (1.00s)\nPASS\n", ""},
		"one did not run": {"=== RUN   TestA\n--- PASS: TestA (0.01s)\nPASS\n", "TestB did not run"},
		"one was skipped": {"\n--- PASS: TestA (0.01s)\n--- SKIP: TestB (0.00s)\n", "TestB did not run"},
		"a part was skipped": {"\n--- PASS: TestA (0.01s)\n    --- SKIP: TestA/x (0.00s)\n--- PASS: TestB (1.00s)\n",
			"skipped"},
		"another has its name": {"\n--- PASS: TestA (0.01s)\n--- PASS: TestBoth (1.00s)\n", "TestB did not run"},
	} {
		err := missing([]string{"TestA", "TestB"}, c.output)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
