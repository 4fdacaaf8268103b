package controller_test

import (
	"flag"
	"os"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

// TestMain starts no API server for fuzzing, which needs none and has a process for each core.
func TestMain(m *testing.M) {
	flag.Parse()
	if fuzz := flag.Lookup("test.fuzz"); fuzz != nil && fuzz.Value.String() != "" {
		os.Exit(m.Run())
	}
	os.Exit(apiserver.Run(m))
}
