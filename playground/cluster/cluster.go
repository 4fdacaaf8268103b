// Package cluster brings playgrounds up and down and talks to the one that is up.
// The commands and the scenarios use it; it runs on the host, outside of the
// playground's namespaces.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/controlplane"
	"github.com/azuredisk-csi/azuredisk/playground/poll"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// ErrNotUp means that no playground is up.
var ErrNotUp = errors.New("no playground is up: run `playground up`")

// Cluster is a playground that is up.
type Cluster struct {
	// Dir is its state folder.
	Dir state.Dir
	// Plan are its machines and addresses.
	Plan topology.Plan
	// Options are the choices with which it was brought up.
	Options state.Options

	client *http.Client
}

// Attach connects to the playground of the state folder. It fails with ErrNotUp if
// its supervisor does not run.
func Attach(ctx context.Context, dir state.Dir) (*Cluster, error) {
	_, alive, err := dir.Supervisor()
	if err != nil {
		return nil, err
	}
	if !alive {
		return nil, ErrNotUp
	}
	c := &Cluster{Dir: dir, client: newClient(dir)}
	if err := state.ReadJSON(dir.Options(), &c.Options); err != nil {
		return nil, err
	}
	if c.Plan, err = c.Options.Plan(); err != nil {
		return nil, err
	}
	return c, nil
}

func newClient(dir state.Dir) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", dir.Socket())
		},
		DisableKeepAlives: true,
	}}
}

// Status asks the supervisor what it knows.
func (c *Cluster) Status(ctx context.Context) (state.Status, error) {
	var status state.Status
	return status, c.call(ctx, http.MethodGet, "/status", nil, &status)
}

// Ready fails unless the playground is up and ready.
func (c *Cluster) Ready(ctx context.Context) error {
	status, err := c.Status(ctx)
	switch {
	case err != nil:
		return err
	case status.Phase == state.Ready:
		return nil
	case status.Error != "":
		return fmt.Errorf("the playground is not ready: %s", status.Error)
	}
	return fmt.Errorf("the playground is not ready: %s", status.Phase)
}

// Azure is the URL of azuresim's ARM endpoint on the host.
func (c *Cluster) Azure(ctx context.Context) (string, error) {
	status, err := c.Status(ctx)
	return status.AzureHost, err
}

// Kubeconfig is the path of a kubeconfig with the administrator's rights.
func (c *Cluster) Kubeconfig() string { return c.Dir.Kubeconfig() }

// RESTConfig is the configuration of a client with the administrator's rights.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Dir.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	return config, nil
}

// Kubernetes is a client with the administrator's rights.
func (c *Cluster) Kubernetes() (kubernetes.Interface, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Program is the path of a program of this playground: kubectl, helm, …
func (c *Cluster) Program(name string) (string, error) {
	if path := c.Options.Programs[name]; path != "" {
		return path, nil
	}
	return "", fmt.Errorf("this playground was brought up without the program %s", name)
}

// PowerOff cuts the power of a node: its disks fail first, then all its processes
// are gone. It returns when they are. A node without power is left alone.
func (c *Cluster) PowerOff(ctx context.Context, node string) error {
	return c.act(ctx, node, "power-off")
}

// PowerOn boots a node that has no power, with what was on its disk. It returns
// before the node is Ready. A node that has power is left alone.
func (c *Cluster) PowerOn(ctx context.Context, node string) error {
	return c.act(ctx, node, "power-on")
}

// Partition pulls the network cable of a node; its pods run on. It is idempotent.
func (c *Cluster) Partition(ctx context.Context, node string) error {
	return c.act(ctx, node, "partition")
}

// Heal plugs the network cable of a node in again. It is idempotent.
func (c *Cluster) Heal(ctx context.Context, node string) error { return c.act(ctx, node, "heal") }

// Freeze pauses a node for that time, as Azure pauses a VM: all of its processes and its network
// stand still. It returns when the node goes on; that does not depend on the caller. If notice is
// not nil, a scheduled event announces it to the VM that long before.
func (c *Cluster) Freeze(ctx context.Context, node string, length time.Duration, notice *time.Duration) (state.Freeze, error) {
	query := url.Values{"for": {length.String()}}
	if notice != nil {
		query.Set("announce", notice.String())
	}
	var freeze state.Freeze
	return freeze, c.call(ctx, http.MethodPost, "/nodes/"+url.PathEscape(node)+"/freeze?"+query.Encode(), nil, &freeze)
}

func (c *Cluster) act(ctx context.Context, node, action string) error {
	return c.call(ctx, http.MethodPost, "/nodes/"+url.PathEscape(node)+"/"+action, nil, nil)
}

// LoadImage gives the image tar to every node that has power. It returns when all have it.
func (c *Cluster) LoadImage(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return c.call(ctx, http.MethodPost, "/images", file, nil)
}

// SetSchedulerExtender makes the default scheduler call the extender, or none if it
// is nil, from its next start on, and restarts it.
func (c *Cluster) SetSchedulerExtender(ctx context.Context, extender *controlplane.Extender) error {
	data, err := json.Marshal(extender)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPut, "/scheduler/extender", bytes.NewReader(data), nil)
}

// SetPool changes the settings of a node pool, with the profile of AKS. It returns when all of its
// nodes have them.
func (c *Cluster) SetPool(ctx context.Context, name string, settings aks.Settings) error {
	data, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if err := c.call(ctx, http.MethodPut, "/pools/"+url.PathEscape(name), bytes.NewReader(data), nil); err != nil {
		return err
	}
	client, err := c.Kubernetes()
	if err != nil {
		return err
	}
	return poll.Until(ctx, time.Minute, 200*time.Millisecond, "the nodes of "+name+" have its settings",
		func(ctx context.Context) error {
			options := metav1.ListOptions{LabelSelector: "kubernetes.azure.com/agentpool=" + name}
			nodes, err := client.CoreV1().Nodes().List(ctx, options)
			if err != nil {
				return err
			}
			for _, node := range nodes.Items {
				if !settings.Of(&node) {
					return fmt.Errorf("%s does not have them", node.Name)
				}
			}
			return nil
		})
}

// Expose makes a loopback address of the host, like 127.0.0.1:8080, reachable for
// pods and nodes, at the address that it returns, until the playground goes down.
func (c *Cluster) Expose(ctx context.Context, hostAddress string) (string, error) {
	var answer struct{ Address string }
	err := c.call(ctx, http.MethodPost, "/forward?to="+url.QueryEscape(hostAddress), nil, &answer)
	return answer.Address, err
}

func (c *Cluster) call(ctx context.Context, method, path string, body io.Reader, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://playground"+path, body)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return fmt.Errorf("talk to the playground's supervisor: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return errors.New(strings.TrimSpace(string(text)))
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
