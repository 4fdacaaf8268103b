package config_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/internal/config"
)

func TestCloudSettings(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		faults []string // none means that the settings are good
	}{
		"the defaults are good":       {},
		"the environment alone":       {args: []string{"--cloud-config="}},
		"the Secret of the V1 driver": {args: []string{"--cloud-config-secret-name=azure-cloud-provider"}},
		"a Secret without a key": {args: []string{"--cloud-config-secret-name=s", "--cloud-config-secret-key="},
			faults: []string{"cloud-config-secret-key"}},
		"relative paths": {args: []string{"--cloud-config=azure.json", "--cloud-ca-file=ca.crt"},
			faults: []string{"cloud-config: \"azure.json\"", "cloud-ca-file: \"ca.crt\""}},
		"reading more often than a second": {args: []string{"--cloud-config-reload-interval=10ms"},
			faults: []string{"cloud-config-reload-interval: 10ms must be at least 1s"}},
		"a user agent that would break the header": {args: []string{"--user-agent-suffix=a\r\nb", "--custom-user-agent=é"},
			faults: []string{"user-agent-suffix", "custom-user-agent"}},
	} {
		t.Run(name, func(t *testing.T) {
			settings := &config.Cloud{}
			flags := pflag.NewFlagSet("cloud", pflag.ContinueOnError)
			settings.AddFlags(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			err := settings.Validate()
			if (err != nil) != (len(test.faults) > 0) {
				t.Fatalf("error %v, want faults %v", err, test.faults)
			}
			for _, fault := range test.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("%q is not told: %v", fault, err)
				}
			}
		})
	}
}
