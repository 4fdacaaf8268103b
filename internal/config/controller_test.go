package config_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/internal/config"
)

func controllerSettings(t *testing.T, args ...string) *config.Controller {
	t.Helper()
	settings := &config.Controller{}
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	settings.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return settings
}

func TestControllerDefaultsAreValidAndFailOver(t *testing.T) {
	s := controllerSettings(t)
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if !s.FailoverEnabled || s.FailoverProbe != config.ProbeKubelet || s.FailoverMassLossThreshold != 45 ||
		!s.FailoverOutOfServiceTaint || s.HeartbeatStaleAfter != 5*time.Second {
		t.Errorf("%+v", s)
	}
}

func TestFailoverCanBeSwitchedOffPartByPart(t *testing.T) {
	s := controllerSettings(t, "--failover-enabled=false", "--failover-probe=none", "--failover-mass-loss-threshold=100",
		"--failover-out-of-service-taint=false")
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if s.FailoverEnabled || s.FailoverProbe != config.ProbeNone || s.FailoverMassLossThreshold != 100 ||
		s.FailoverOutOfServiceTaint {
		t.Errorf("%+v", s)
	}
}

func TestControllerValidateListsAllFaults(t *testing.T) {
	err := controllerSettings(t, "--endpoint=", "--cloud-config=azure.json",
		"--clean-up-delay=-1s", "--heartbeat-stale-after=0s", "--replica-reserved-slots=-1", "--replica-node-label=team",
		"--retry-period=0s",
		"--failover-probe=ping", "--failover-mass-loss-threshold=101").Validate()
	if err == nil {
		t.Fatal("no fault was found")
	}
	for _, fault := range []string{
		"endpoint:", "cloud-config:", "clean-up-delay:", "heartbeat-stale-after:",
		"replica-reserved-slots:", "replica-node-label:", "lease-duration ",
		`failover-probe: "ping" must be kubelet or none`, "failover-mass-loss-threshold: 101 must be 1 to 100 percent",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+fault) {
			t.Errorf("no fault says %s", fault)
		}
	}
	if err := controllerSettings(t, "--failover-mass-loss-threshold=0").Validate(); err == nil {
		t.Error("a threshold of 0 was taken")
	}
}

func TestExtraTagsAreThoseThatAzureAccepts(t *testing.T) {
	s := controllerSettings(t, `--extra-tags="costCenter=47,11"`, "--extra-tags=team=a=b", "--cluster-id=blue")
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	want := map[string]string{"costCenter": "47,11", "team": "a=b", config.TagClusterID: "blue"}
	if got := s.Tags(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, bad := range []string{"--extra-tags=a/b=c", "--extra-tags==c", "--cluster-id=" + strings.Repeat("x", 257)} {
		if err := controllerSettings(t, bad).Validate(); err == nil || !strings.Contains(err.Error(), "extra-tags, cluster-id") {
			t.Errorf("%s: got %v, want a fault of extra-tags, cluster-id", bad, err)
		}
	}
}
