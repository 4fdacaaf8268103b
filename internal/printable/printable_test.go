package printable_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

func TestControlCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want, line string }{
		"words":                    {"größer, 日本\n\tx", "größer, 日本\n\tx", "größer, 日本  x"},
		"a colour":                 {"\x1b[31mred", `\u001b[31mred`, `\u001b[31mred`},
		"a bell and a delete":      {"a\ab\x7f", `a\u0007b\u007f`, `a\u0007b\u007f`},
		"a line that is overdrawn": {"denied\rallowed", `denied\u000dallowed`, `denied\u000dallowed`},
		"lines of Windows":         {"a\r\nb", `a\u000d` + "\nb", "a b"},
		"a control of C1":          {"\u009b2J", `\u009b2J`, `\u009b2J`},
		"a reversed direction":     {"a\u202egpj.exe", `a\u202egpj.exe`, `a\u202egpj.exe`},
		"a separator of lines":     {"a\u2028b", `a\u2028b`, `a\u2028b`},
		"a tag":                    {"a\U000e0041", `a\U000e0041`, `a\U000e0041`},
		"bytes that are no UTF-8":  {"a\x9bb", `a\x9bb`, `a\x9bb`},
	} {
		if got := printable.Text(test.text); got != test.want {
			t.Errorf("%s: got text %q, want %q", name, got, test.want)
		}
		if got := printable.Line(test.text); got != test.line {
			t.Errorf("%s: got line %q, want %q", name, got, test.line)
		}
	}
}

func TestAWriterKeepsJSON(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := json.NewEncoder(printable.Writer(&b)).Encode("\x1b \u009b \u202e \x7f"); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got != "\x1b \u009b \u202e \x7f" {
		t.Errorf("got %q, %v from %q, want what was written", got, err, b.String())
	}
	if strings.ContainsAny(b.String(), "\x1b\u009b\u202e\x7f") {
		t.Errorf("got %q, want no control character", b.String())
	}
}
