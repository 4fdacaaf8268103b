// Package printable escapes what others wrote, where text leaves the driver: on a terminal, a page, in
// an event, a log or a file. Events, conditions, annotations and Azure's messages may have characters
// that move the cursor, set colours, ring a bell or reverse the direction of the text. It is the only
// place where such characters are escaped.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text with each control and format character but tab and newline, and each byte that
// is no UTF-8, as an escape such as \u001b or \xff. The escapes of characters are also JSON's, so that
// JSON stays what it was.
func Text(text string) string {
	if strings.IndexFunc(text, escaped) < 0 && utf8.ValidString(text) {
		return text // as nearly always
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case escaped(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case escaped(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// Line is Text on one line: a newline could begin a line that seems to be the program's, and a tab a
// column.
func Line(text string) string {
	return Text(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(text))
}

// escaped reports whether a character is shown as an escape: control characters (Cc), format characters
// (Cf), as those that change the direction, and the separators of lines and paragraphs.
func escaped(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// Writer returns a writer that writes Text. A character must not be split between two writes.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ io.Writer }

// Write writes the text, and reports the length that it had.
func (w writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, Text(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
