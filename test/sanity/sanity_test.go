// Package sanity runs csi-sanity's specs for the RPCs that the driver serves
// against the whole stack: real processes, azuresim, real devices.
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

// served are the parts of the suite for the RPCs that the driver serves. What is in
// none of them is left out by Ginkgo's focus; what is in one of them must run.
var served = []string{
	"Identity Service", "CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume",
	"ValidateVolumeCapabilities", "ControllerGetCapabilities", "NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume",
	"NodeUnpublishVolume", "NodeGetVolumeStats", "NodeGetInfo", "NodeGetCapabilities", "Node Service should work",
	"Node Service should be idempotent",
}

// otherRPC are specs within those parts that need an RPC which the driver does not serve yet.
var otherRPC = []string{
	"from source snapshot", "from an existing source snapshot", "from source volume", "from an existing source volume", "snapshot", "GetCapacity", "ListVolumes", "ExpandVolume",
	"ModifyVolume", "mutable", "GetVolume ", "GroupController", "source volume is not found", "volume attribute class", "published but is incompatible",
}

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"ginkgo.focus": strings.Join(served, "|"), "ginkgo.skip": strings.Join(otherRPC, "|")} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(apiserver.Run(m))
}

func TestSanity(t *testing.T) {
	s := stack.Start(t, stack.Options{Nodes: 1, Controllers: 1, Regional: true})
	config := sanity.NewTestConfig()
	config.Address = "unix://" + s.Nodes[0].Socket
	config.ControllerAddress = "unix://" + s.ControllerSocket
	config.TargetPath = filepath.Join(s.Dir, "sanity-target")
	config.StagingPath = filepath.Join(s.Dir, "sanity-staging")
	config.TestVolumeSize = 1 << 30
	config.TestVolumeAccessType = *access
	config.IdempotentCount = 3
	config.TestNodeVolumeAttachLimit = true

	ginkgo.ReportAfterSuite("every served spec ran", func(report ginkgo.Report) {
		ran := 0
		for _, spec := range report.SpecReports {
			if !spec.LeafNodeType.Is(types.NodeTypeIt) {
				continue
			}
			if spec.State.Is(types.SpecStatePassed) {
				ran++
			}
			// A spec that is out of focus has not run at all; one that skipped itself has.
			if spec.State.Is(types.SpecStateSkipped) && !spec.StartTime.IsZero() && spec.RunTime > 0 {
				t.Errorf("skipped itself: %s: %s", spec.FullText(), spec.Failure.Message)
			}
		}
		t.Logf("METRIC sanity access=%s passed=%d", *access, ran)
	})
	sanity.Test(t, config)
	s.AssertNothingLeft(t)
}
