package config_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/internal/config"
)

func nodeSettings(t *testing.T, args ...string) *config.Node {
	t.Helper()
	settings := &config.Node{}
	flags := pflag.NewFlagSet("node", pflag.ContinueOnError)
	settings.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return settings
}

func TestNodeDefaultsAreValid(t *testing.T) {
	settings := nodeSettings(t, "--node-name=a")
	if err := settings.Validate(); err != nil {
		t.Error(err)
	}
	if got := settings.RecordsDir(); got != "/var/lib/kubelet/plugins/disk.csi.azure.com/staged" {
		t.Errorf("RecordsDir = %s", got)
	}
	if got := settings.RegistrationDir(); got != "/var/lib/kubelet/plugins_registry" {
		t.Errorf("RegistrationDir = %s", got)
	}
}

func TestNodeValidateListsAllFaults(t *testing.T) {
	err := nodeSettings(t, "--endpoint=tcp://0.0.0.0:1", "--kubelet-dir=kubelet", "--state-dir=state", "--device-links=links",
		"--imds-endpoint=169.254.169.254",
		"--heartbeat-interval=500ms", "--replicated-heartbeat-interval=900ms", "--capacity-wait=1h",
		"--device-rescan-interval=1ms",
		"--max-volumes=-1", "--reserved-volume-slots=-2", "--default-max-volumes=0", "--node-metadata-sources=dns",
		"--persistent-reservations=on", "--log-level=info+2").Validate()
	if err == nil {
		t.Fatal("no fault was found")
	}
	for _, setting := range []string{
		"node-name", "endpoint", "kubelet-dir", "state-dir", "device-links", "imds-endpoint", "heartbeat-interval",
		"replicated-heartbeat-interval", "capacity-wait",
		"device-rescan-interval", "max-volumes", "reserved-volume-slots", "default-max-volumes", "node-metadata-sources",
		"persistent-reservations", "log-level",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+setting+":") {
			t.Errorf("no fault names %s", setting)
		}
	}
}
