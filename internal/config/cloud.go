package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// defaultCloudConfig is where Azure's Kubernetes distributions keep azure.json.
const defaultCloudConfig = "/etc/kubernetes/azure.json"

// Cloud are the settings by which the controller finds Azure and signs in.
type Cloud struct {
	// CloudConfig is the path of azure.json; "" where everything is in the environment.
	CloudConfig string
	// CloudConfigSecretName, CloudConfigSecretNamespace and CloudConfigSecretKey name a Secret that
	// is read over the API and that wins over the file, as with the V1 driver. No name, no Secret.
	CloudConfigSecretName, CloudConfigSecretNamespace, CloudConfigSecretKey string
	// CloudConfigReloadInterval is how often all of that is read again.
	CloudConfigReloadInterval time.Duration
	// CloudCAFile is the path of certificates that are trusted besides the system's; "" for none.
	CloudCAFile string
	// SubscriptionID, ResourceGroup and Location take precedence over azure.json.
	SubscriptionID string
	ResourceGroup  string
	Location       string
	// CustomUserAgent and UserAgentSuffix are put before and after the driver's own name in the
	// User-Agent header.
	CustomUserAgent, UserAgentSuffix string
}

// AddFlags registers the settings with their defaults.
func (c *Cloud) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.CloudConfig, "cloud-config", defaultCloudConfig,
		"`path` of azure.json; a change is taken up without a restart. Where this is not set, AZURE_CREDENTIAL_FILE names it; empty for the environment alone (AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_SUBSCRIPTION_ID, ...)")
	flags.StringVar(&c.CloudConfigSecretName, "cloud-config-secret-name", "",
		"name of a Secret with azure.json that is read over the API instead of the file, if it is there; empty for none")
	flags.StringVar(&c.CloudConfigSecretNamespace, "cloud-config-secret-namespace", "kube-system", "namespace of that Secret")
	flags.StringVar(&c.CloudConfigSecretKey, "cloud-config-secret-key", "cloud-config", "key in that Secret")
	flags.DurationVar(&c.CloudConfigReloadInterval, "cloud-config-reload-interval", 10*time.Second,
		"how often azure.json, the certificates and the Secret are looked at for changes")
	flags.StringVar(&c.CloudCAFile, "cloud-ca-file", "",
		"`path` of certificates (PEM) that Azure's endpoints are checked against besides the system's; read again when it changes")
	flags.StringVar(&c.SubscriptionID, "subscription-id", "", "subscription of new disks; empty for azure.json's")
	flags.StringVar(&c.ResourceGroup, "resource-group", "", "resource group of new disks; empty for azure.json's")
	flags.StringVar(&c.Location, "location", "", "region of new disks; empty for azure.json's")
	flags.StringVar(&c.CustomUserAgent, "custom-user-agent", "",
		"what requests to Azure say first in their User-Agent; empty for azure.json's userAgent")
	flags.StringVar(&c.UserAgentSuffix, "user-agent-suffix", "", "what requests to Azure say last in their User-Agent")
}

// Validate returns all faults.
func (c *Cloud) Validate() error {
	var faults []error
	for name, path := range map[string]string{"cloud-config": c.CloudConfig, "cloud-ca-file": c.CloudCAFile} {
		faults = append(faults, faultIf(path != "" && !filepath.IsAbs(path), "%s: %q must be an absolute path, or empty", name,
			path))
	}
	if c.CloudConfigSecretName != "" && (c.CloudConfigSecretNamespace == "" || c.CloudConfigSecretKey == "") {
		faults = append(faults, fmt.Errorf(
			"cloud-config-secret-namespace %q, cloud-config-secret-key %q: neither may be empty where cloud-config-secret-name is set",
			c.CloudConfigSecretNamespace, c.CloudConfigSecretKey))
	}
	faults = append(faults, faultIf(c.CloudConfigReloadInterval < time.Second,
		"cloud-config-reload-interval: %s must be at least 1s", c.CloudConfigReloadInterval))
	for name, agent := range map[string]string{"custom-user-agent": c.CustomUserAgent, "user-agent-suffix": c.UserAgentSuffix} {
		faults = append(faults, faultIf(strings.ContainsFunc(agent, func(r rune) bool { return r < ' ' || r > '~' }),
			"%s: %q must be printable ASCII", name, agent))
	}
	return errors.Join(faults...)
}
