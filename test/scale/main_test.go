// Package scale measures the driver's programs in clusters of thousands of nodes, over a real API
// server.
package scale

import (
	"os"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

var must = expect.Must

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }
