package simulation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestEachInterventionIsDocumented(t *testing.T) {
	for _, i := range interventions {
		text, err := os.ReadFile(filepath.Join("../../docs", i.file))
		expect.Must(t, err)
		_, section, found := strings.Cut(string(text), "\n## "+i.section+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !found || !strings.Contains(strings.Join(strings.Fields(section), " "), i.words) {
			t.Errorf("docs/%s, section %q:\n got %q\nwant it to contain %q", i.file, i.section, section, i.words)
		}
	}
}
