package config_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/azuredisk-csi/azuredisk/internal/config"
)

func TestSchedulerValidate(t *testing.T) {
	service, configuration := "--webhook-service=disks/scheduler", "--webhook-configuration=steer"
	cases := map[string]struct {
		args []string
		// want is the setting that a fault names; "" for none.
		want string
	}{
		"the defaults": {nil, ""},
		"a webhook that makes its certificate": {[]string{"--webhook-address=:1", "--webhook-secret=s", service,
			configuration}, ""},
		"a webhook with a certificate in files": {[]string{"--webhook-address=:1", "--tls-cert-file=c", "--tls-key-file=k"},
			""},
		"a webhook without a certificate": {[]string{"--webhook-address=:1"}, "webhook-secret, tls-cert-file"},
		"a webhook with two certificates": {[]string{"--webhook-address=:1", "--webhook-secret=s", service,
			configuration, "--tls-cert-file=c", "--tls-key-file=k"}, "webhook-secret, tls-cert-file"},
		"a webhook whose Service is not named": {[]string{"--webhook-address=:1", "--webhook-secret=s", configuration},
			"webhook-service"},
		"a webhook whose Service has no namespace": {[]string{"--webhook-address=:1", "--webhook-secret=s", configuration,
			"--webhook-service=scheduler"}, "webhook-service"},
		"a webhook that no API server would trust": {[]string{"--webhook-address=:1", "--webhook-secret=s", service},
			"webhook-configuration"},
		"a webhook without an address": {[]string{"--webhook-address="}, "webhook-address"},
		"a webhook without the extender": {[]string{"--address=0", "--webhook-address=:1", "--webhook-secret=s", service,
			configuration}, ""},
		"neither the extender nor the webhook": {[]string{"--address=0"}, "address, webhook-address"},
		"no address of the extender":           {[]string{"--address="}, "address"},
		"a certificate without a key":          {[]string{"--tls-cert-file=c"}, "tls-cert-file, tls-key-file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			settings := &config.Scheduler{}
			flags := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
			settings.AddFlags(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			err := settings.Validate()
			if c.want == "" && err != nil {
				t.Errorf("got %v, want no fault", err)
			}
			if c.want != "" && (err == nil || !strings.Contains("\n"+err.Error(), "\n"+c.want+":")) {
				t.Errorf("got %v, want a fault of %s", err, c.want)
			}
		})
	}
}
