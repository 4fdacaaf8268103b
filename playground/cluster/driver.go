package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/controlplane"
	"github.com/azuredisk-csi/azuredisk/playground/images"
	"github.com/azuredisk-csi/azuredisk/playground/source"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// Where the driver is installed.
const (
	DriverNamespace = "azure-disk-csi"
	DriverRelease   = "azuredisk"
)

const (
	extenderPort   = 29706
	installTimeout = 3 * time.Minute
)

// InstallDriver installs the driver's chart, or upgrades it, with images and settings
// for this playground, and waits until it is ready, unless the cluster is of AKS Automatic, which
// refuses its pods. values is a file of Helm values that win over those, or empty.
func (c *Cluster) InstallDriver(ctx context.Context, values string, progress Progress) error {
	if c.Options.Driver.Ref == "" {
		return fmt.Errorf("this playground was brought up without the driver")
	}
	chart, err := driverChart()
	if err != nil {
		return err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	own, err := yaml.Marshal(c.driverValues(status.Azure))
	if err != nil {
		return err
	}
	file := filepath.Join(string(c.Dir), "driver-values.yaml")
	if err := os.WriteFile(file, own, 0o600); err != nil {
		return err
	}
	args := []string{"upgrade", "--install", DriverRelease, chart,
		"--namespace", DriverNamespace, "--create-namespace", "--values", file,
		"--timeout", installTimeout.String()}
	refused := c.Options.Profile == aks.Automatic
	if !refused {
		args = append(args, "--wait")
	}
	if values != "" {
		args = append(args, "--values", values)
	}
	start := time.Now()
	progress("installing the driver's chart")
	if err := c.helm(ctx, args...); err != nil {
		return fmt.Errorf("install the driver: %w", err)
	}
	if refused {
		progress("the driver is installed; the policies of AKS Automatic refuse its pods in a namespace that is not excluded")
		return nil
	}
	progress("the driver is ready after %.0f s", time.Since(start).Seconds())
	return nil
}

// DriverValues returns the Helm values of the driver for this playground, and the azure.json of its
// credential, which they leave out.
func (c *Cluster) DriverValues(ctx context.Context) (values, azureJSON map[string]any, err error) {
	status, err := c.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	values = c.driverValues(status.Azure)
	azureJSON = values["cloud"].(map[string]any)["inline"].(map[string]any)
	delete(values, "cloud")
	return values, azureJSON, nil
}

// DriverInstalled reports whether the driver's release is there.
func (c *Cluster) DriverInstalled(ctx context.Context) (bool, error) {
	out, err := c.helmOutput(ctx, "list", "--namespace", DriverNamespace, "--all", "--short")
	return slices.Contains(strings.Fields(string(out)), DriverRelease), err
}

// UninstallDriver uninstalls the driver's chart. The chart itself refuses while there
// are volumes.
func (c *Cluster) UninstallDriver(ctx context.Context) error {
	return c.helm(ctx, "uninstall", DriverRelease, "--namespace", DriverNamespace, "--wait", "--timeout", installTimeout.String())
}

// driverChart is the folder of the driver's chart.
func driverChart() (string, error) {
	root, err := source.Root()
	return filepath.Join(root, "charts", "azuredisk"), err
}

// driverRevision is the number of the present revision of the driver's release.
func (c *Cluster) driverRevision(ctx context.Context) (int, error) {
	out, err := c.helmOutput(ctx, "status", DriverRelease, "--namespace", DriverNamespace, "--output", "json")
	if err != nil {
		return 0, err
	}
	var release struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(out, &release); err != nil {
		return 0, fmt.Errorf("read the state of the driver's release: %w", err)
	}
	return release.Version, nil
}

func (c *Cluster) helm(ctx context.Context, args ...string) error {
	_, err := c.helmOutput(ctx, args...)
	return err
}

func (c *Cluster) helmOutput(ctx context.Context, args ...string) ([]byte, error) {
	helm, err := c.Program("helm")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, helm, append(args, "--kubeconfig", c.Dir.Kubeconfig())...)
	// Helm's own files would otherwise go to the user's home.
	home := filepath.Join(string(c.Dir), "helm")
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("helm %s: %w\n%s%s", args[0], err, bytes.TrimSpace(out), bytes.TrimSpace(complaints.Bytes()))
	}
	return out, nil
}

// driverValues point the driver to this playground's images and its azuresim.
func (c *Cluster) driverValues(azure string) map[string]any {
	type object = map[string]any
	sidecarImages := object{}
	for _, image := range c.Options.Sidecars {
		repository, tag := splitRef(image)
		name := strings.TrimPrefix(filepath.Base(repository), "csi-")
		sidecarImages[name] = object{"image": object{
			"repository": repository,
			"tag":        tag,
			"pullPolicy": "Never",
		}}
	}
	// What tests wait for shall not take a minute.
	sidecarImages["provisioner"].(object)["capacityPollInterval"] = "5s"
	scheduler := object{"mode": "extender", "service": object{"clusterIP": c.Plan.Extender().String()}}
	if c.Options.PlainScheduler {
		scheduler = object{"mode": "auto"}
	}
	repository, tag := splitRef(c.Options.Driver)
	return object{
		"image": object{
			"repository": repository,
			"tag":        tag,
			"pullPolicy": "Never",
		},
		"sidecars": sidecarImages,
		"cloud": object{"inline": object{
			"cloud":                   "AzurePublicCloud",
			"tenantId":                topology.TenantID,
			"subscriptionId":          topology.SubscriptionID,
			"resourceGroup":           topology.ResourceGroup,
			"location":                topology.Region,
			"resourceManagerEndpoint": azure,
			"aadClientId":             c.Options.Credentials.ClientID,
			"aadClientSecret":         c.Options.Credentials.Secret,
		}},
		"scheduler": scheduler,
		// The scenarios read metrics through the API server, which has no token for them.
		"metrics": object{"listen": "network", "secure": false},
	}
}

func splitRef(image images.Image) (repository, tag string) {
	i := strings.LastIndex(image.Ref, ":")
	return image.Ref[:i], image.Ref[i+1:]
}

// driverExtender is the driver's scheduler extender as the default scheduler calls it.
// It can be configured before the driver is there, because it is ignored while it
// does not answer.
func driverExtender(address string) *controlplane.Extender {
	return &controlplane.Extender{
		URL:              fmt.Sprintf("http://%s:%d", address, extenderPort),
		FilterVerb:       "filter",
		PrioritizeVerb:   "prioritize",
		Weight:           10,
		Ignorable:        true,
		NodeCacheCapable: true,
		Timeout:          "2s",
	}
}
