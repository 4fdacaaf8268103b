package imds_test

import (
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/imds"
)

func TestAddressesOfAHostAreRefused(t *testing.T) {
	for _, address := range []string{"169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:80", "[::ffff:169.254.169.254]:80",
		"localhost:80"} {
		command := imds.NewCommand()
		command.SetArgs([]string{"--arm-endpoint", "http://127.0.0.1:1", "--subscription", "s", "--resource-group", "g", "--vm",
			"v", "--listen", address})
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "address not allowed") {
			t.Errorf("%s: %v, want it refused", address, err)
		}
	}
}

func TestAllMissingFlagsAreNamed(t *testing.T) {
	command := imds.NewCommand()
	command.SetArgs(nil)
	err := command.ExecuteContext(t.Context())
	for _, flag := range []string{"--arm-endpoint", "--subscription", "--resource-group", "--vm"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("got %v, want an error that names %s", err, flag)
		}
	}
}
