package snapshots_test

import (
	"os"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }
