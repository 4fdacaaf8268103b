// Package sanity runs the whole of csi-sanity against the whole stack: real processes, azuresim,
// real devices.
//
// Every spec of the suite runs: none is focused or left out here, and one that skips itself, as the
// suite does where a driver lacks a capability, fails the test. The exceptions are the specs of the
// GroupController service, which the driver does not offer (ADR 0061). The one spec that is pending
// is switched off by the suite itself.
//
// Ginkgo runs one suite in a process, so filesystem and raw block volumes take a run each:
//
//	go test ./test/sanity
//	go test ./test/sanity -access block
package sanity

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/test/stack"
)

var access = flag.String("access", "mount", "mount or block")

// leastSpecs is how many specs of the services that the driver offers version 5.6 of the suite has
// for one access type. A newer one may have more.
const leastSpecs = 96

func TestMain(m *testing.M) {
	// The count line goes to a log file.
	if err := flag.Set("ginkgo.no-color", "true"); err != nil {
		panic(err)
	}
	os.Exit(apiserver.Run(m))
}

func TestSanity(t *testing.T) {
	s := stack.Start(t, stack.Options{
		Nodes:       1,
		Controllers: 1,
		Regional:    true,
		Contract:    true,
	})
	config := sanity.NewTestConfig()
	config.Address = "unix://" + s.Nodes[0].Socket
	config.ControllerAddress = "unix://" + s.ControllerSocket
	config.TargetPath = filepath.Join(s.Dir, "sanity-target")
	config.StagingPath = filepath.Join(filepath.Dir(s.Nodes[0].Socket), "sanity-staging")
	config.TestVolumeSize = 1 << 30
	config.TestVolumeAccessType = *access
	config.TestVolumeParameters = map[string]string{"skuName": "StandardSSD_LRS"}
	config.TestVolumeMutableParameters = map[string]string{"skuName": "Premium_LRS"}
	config.IdempotentCount = 3
	config.TestNodeVolumeAttachLimit = true

	ginkgo.ReportAfterSuite("every spec ran", func(report ginkgo.Report) {
		passed := 0
		for _, spec := range report.SpecReports {
			switch {
			case !spec.LeafNodeType.Is(types.NodeTypeIt):
			case spec.State.Is(types.SpecStatePassed):
				passed++
			case spec.State.Is(types.SpecStateSkipped) && !strings.HasPrefix(spec.FullText(), "GroupController Service "):
				t.Errorf("skipped: %s: %s", spec.FullText(), spec.Failure.Message)
			}
		}
		if passed < leastSpecs {
			t.Errorf("%d specs passed, and the suite has at least %d", passed, leastSpecs)
		}
		t.Logf("METRIC sanity access=%s passed=%d", *access, passed)
	})
	sanity.Test(t, config)
	s.AssertNothingLeft(t)
}
