// Package sanity runs csi-sanity's specs for the RPCs that the driver serves
// against the whole stack: real processes, azuresim, real devices.
package sanity

import (
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"

	"github.com/azuredisk-csi/azuredisk/test/stack"
)

func TestSanityOfFilesystemVolumes(t *testing.T) { run(t, "mount") }

func run(t *testing.T, accessType string) {
	s := stack.Start(t, stack.Options{Nodes: 1, Controllers: 1, Regional: true})
	config := sanity.NewTestConfig()
	config.Address = "unix://" + s.Nodes[0].Socket
	config.ControllerAddress = "unix://" + s.ControllerSocket
	config.TargetPath = filepath.Join(s.Dir, "sanity-target")
	config.StagingPath = filepath.Join(s.Dir, "sanity-staging")
	config.TestVolumeSize = 1 << 30
	config.TestVolumeAccessType = accessType
	config.IdempotentCount = 3
	sanity.Test(t, config)
}
