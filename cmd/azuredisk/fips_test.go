package main

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// fipsSetting is what the chart's value fips sets.
const fipsSetting = "GODEBUG=fips140=on"

// TestTheProgramRunsWithFIPS runs this package's tests of the controller, of the metrics over TLS
// and of the credentials again, in a process with Go's FIPS 140-3 module. Keys of SCSI
// reservations are no cryptography.
func TestTheProgramRunsWithFIPS(t *testing.T) {
	if fips140.Enabled() {
		return // This is the other process.
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := []string{
		"TestTheProgramRunsWithFIPS", "TestControllerServesCSIAndMetrics", "TestSecureMetricsAreForAuthorizedClients",
		"TestAccessToAzureIsFollowedAndReportedAsEvents",
	}
	command := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$")
	command.Env = append(os.Environ(), fipsSetting)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("with %s: %v\n%s", fipsSetting, err, output)
	}
	for _, test := range tests {
		if !strings.Contains(string(output), "--- PASS: "+test+" ") {
			t.Errorf("with %s: %s has not passed\n%s", fipsSetting, test, output)
		}
	}
}
