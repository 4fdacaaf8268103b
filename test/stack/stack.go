package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// What the simulated Azure and the cluster are called.
const (
	Subscription  = "00000000-0000-0000-0000-000000000001"
	ResourceGroup = "stack"
	Location      = "eastus"
	TopologyKey   = "topology.disk.csi.azure.com/zone"

	zone     = "1"
	computeV = "2025-04-01"
	disksV   = "2025-01-02"
)

// Options of a Stack.
type Options struct {
	// Nodes is the number of VMs with a node plug-in each.
	Nodes int
	// Controllers is the number of controller plug-ins; one of them leads.
	Controllers int
	// Regional puts the VMs in no zone.
	Regional bool
	// Extender reports whether a scheduler extender runs.
	Extender bool
	// VMSize is the size of the VMs; "" for one with a few slots.
	VMSize string
	// NoDevices leaves out the hypervisor: volumes are attached, and cannot be staged. This needs
	// no root.
	NoDevices bool
	// Contract holds the driver's requests, and azuresim's answers, to Azure's own description.
	Contract bool
	// AzureFlags are further flags of azuresim, and ControllerFlags of the controller plug-ins.
	AzureFlags, ControllerFlags []string
}

// Stack is a running driver.
type Stack struct {
	options Options
	// Dir holds sockets, mounts, disks and logs.
	Dir string
	// Zone of every node, as a topology value; empty for none.
	Zone string
	// Namespace of the custom resources.
	Namespace string
	Nodes     []*Node
	// ControllerSocket is the CSI endpoint of the first controller plug-in.
	ControllerSocket string
	// Kube reads the API server.
	Kube client.WithWatch
	// Admin is the URL of azuresim's admin API.
	Admin string

	controller csi.ControllerClient
	arm        string
	// driverAzure is where the controllers reach Azure.
	driverAzure string
	bin         string
	logs        string
	kubeconfig  string
	hypervisor  *Process
	killable    []*Process
}

// Node is a simulated VM with its node plug-in.
type Node struct {
	Name    string
	Socket  string
	dir     string
	client  csi.NodeClient
	process *Process
}

// paths returns where the orchestrator stages and publishes a volume on the node.
func (n *Node) paths(volumeID string) (staging, target string) {
	name := filepath.Base(volumeID)
	return filepath.Join(n.dir, "staging", name, "globalmount"), filepath.Join(n.dir, "pods", name, "mount")
}

// Controller calls the first controller plug-in.
func (s *Stack) Controller() csi.ControllerClient { return s.controller }

// CutPower cuts a node's VM off its disks, as a power cut does, and RestorePower gives them back.
// Its node plug-in runs on.
func (s *Stack) CutPower(t testing.TB, node *Node) {
	t.Helper()
	call(t, http.MethodPost, s.Admin+"/admin/vms/"+node.Name+"/power-cut", nil)
}

// RestorePower is the end of CutPower.
func (s *Stack) RestorePower(t testing.TB, node *Node) {
	t.Helper()
	call(t, http.MethodPost, s.Admin+"/admin/vms/"+node.Name+"/power-restore", nil)
}

// call sends a request with a document.
func call(t testing.TB, method, url string, document any) {
	t.Helper()
	body, err := json.Marshal(document)
	expect.Must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	expect.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	expect.Must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s: %s (%v)", method, url, response.Status, answer, err)
	}
}

// Start starts a stack that ends with the test.
func Start(t testing.TB, options Options) *Stack {
	t.Helper()
	if os.Getuid() != 0 && !options.NoDevices {
		t.Fatal("this test needs root: it mounts real devices")
	}
	if options.VMSize == "" {
		options.VMSize = "Standard_D4s_v5"
	}
	s := newStack(t, options)
	if !options.Regional {
		s.Zone = Location + "-" + zone
	}
	s.startAzure(t)
	for i := range options.Nodes {
		s.startNode(t, i)
	}
	for i := range options.Controllers {
		s.startController(t, i)
	}
	if options.Extender {
		s.startExtender(t)
	}
	s.awaitNodes(t)
	conn, err := Connect(s.ControllerSocket)
	expect.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s.controller = csi.NewControllerClient(conn)
	return s
}

func newStack(t testing.TB, options Options) *Stack {
	t.Helper()
	// Unix sockets have short names: t.TempDir is too long for them.
	dir, err := os.MkdirTemp("", "azd-")
	expect.Must(t, err)
	s := &Stack{
		options:   options,
		Dir:       dir,
		Namespace: apiserver.Namespace(t),
		Kube:      apiserver.Client(t),
		bin:       filepath.Join(tree.Root(), "bin"),
		logs:      filepath.Join(tree.Root(), "out", "test", t.Name()),
	}
	t.Cleanup(func() { s.sweep(t) })
	expect.Must(t, os.RemoveAll(s.logs))
	expect.Must(t, os.MkdirAll(s.logs, 0o755))
	expect.Must(t, tree.Build(s.bin, "azuredisk", "azuresim"))
	s.kubeconfig = filepath.Join(dir, "kubeconfig")
	expect.Must(t, writeKubeconfig(apiserver.Config(t), s.kubeconfig))
	return s
}

func (s *Stack) hypervisorDir() string { return filepath.Join(s.Dir, "hv") }

func (s *Stack) startAzure(t testing.TB) {
	t.Helper()
	socket := ""
	if !s.options.NoDevices {
		socket = filepath.Join(s.Dir, "hv.sock")
		s.hypervisor = newProcess("hypervisor", s.logs, filepath.Join(s.bin, "azuresim"),
			[]string{"hypervisor", "--state-dir", s.hypervisorDir(), "--socket", socket}, answersAt("unix", socket))
		s.hypervisor.mustStart(t)
	}
	listen, admin := loopback.Address(t), loopback.Address(t)
	s.arm, s.Admin = "http://"+listen, "http://"+admin
	azuresim := newProcess("azuresim", s.logs, filepath.Join(s.bin, "azuresim"), append([]string{
		"serve", "--listen", listen, "--admin-listen", admin, "--state-dir", filepath.Join(s.Dir, "azure"),
		"--latency", "fast", "--throttle", "off", "--hypervisor", socket,
		"--subscription", Subscription, "--resource-group", ResourceGroup, "--location", Location,
	}, s.options.AzureFlags...), answersHTTP("http://"+admin+"/admin/healthz"))
	azuresim.mustStart(t)
	s.killable = append(s.killable, azuresim)
	s.driverAzure = s.arm
	if s.options.Contract {
		s.driverAzure = checked(t, s.arm)
	}
}

func (s *Stack) startNode(t testing.TB, i int) {
	t.Helper()
	name := fmt.Sprintf("node-%d", i+1)
	s.putVM(t, name)
	s.MakeNode(t, name)
	imdsAddress := loopback.Address(t)
	imds := newProcess("imds-"+name, s.logs, filepath.Join(s.bin, "azuresim"), []string{
		"imds", "--arm-endpoint", s.arm, "--subscription", Subscription, "--resource-group", ResourceGroup,
		"--vm", name, "--listen", imdsAddress,
	}, answersAt("tcp", imdsAddress))
	imds.mustStart(t)

	dir := filepath.Join(s.Dir, name)
	node := &Node{
		Name:   name,
		dir:    dir,
		Socket: filepath.Join(dir, "csi.sock"),
	}
	health := loopback.Address(t)
	node.process = newProcess("azuredisk-"+name, s.logs, filepath.Join(s.bin, "azuredisk"), []string{
		"node", "--kubeconfig", s.kubeconfig, "--driver-namespace", s.Namespace, "--node-name", name,
		"--endpoint", "unix://" + node.Socket, "--health-address", health, "--metrics-address", loopback.Address(t),
		"--log-level", "debug",
		"--kubelet-dir", dir, "--imds-endpoint", "http://" + imdsAddress, "--node-metadata-sources", "imds",
		"--device-links", filepath.Join(s.hypervisorDir(), "vms", name, "dev", "disk", "azure"), "--register=false",
		"--device-rescan-interval", "200ms", "--enable-expansion",
	}, answersHTTP("http://"+health+"/readyz"))
	node.process.mustStart(t)
	conn, err := Connect(node.Socket)
	expect.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	node.client = csi.NewNodeClient(conn)
	s.Nodes = append(s.Nodes, node)
	s.killable = append(s.killable, node.process)
}

func (s *Stack) startController(t testing.TB, i int) {
	t.Helper()
	name := fmt.Sprintf("controller-%d", i+1)
	socket := filepath.Join(s.Dir, name+".sock")
	if i == 0 {
		s.ControllerSocket = socket
	}
	cloudConfig := filepath.Join(s.Dir, "azure.json")
	raw, err := json.Marshal(map[string]string{
		"tenantId": "00000000-0000-0000-0000-00000000000a", "subscriptionId": Subscription, "resourceGroup": ResourceGroup,
		"location":                Location,
		"resourceManagerEndpoint": s.driverAzure, "aadClientId": "stack", "aadClientSecret": "stack",
	})
	expect.Must(t, err)
	expect.Must(t, os.WriteFile(cloudConfig, raw, 0o600))
	health := loopback.Address(t)
	controller := newProcess(name, s.logs, filepath.Join(s.bin, "azuredisk"), append([]string{
		"controller", "--kubeconfig", s.kubeconfig, "--driver-namespace", s.Namespace, "--endpoint", "unix://" + socket,
		"--cloud-config", cloudConfig, "--health-address", health, "--log-level", "debug",
		"--leader-election-namespace", s.Namespace, "--lease-duration", "3s", "--renew-deadline", "2s", "--retry-period", "500ms",
	}, s.options.ControllerFlags...), answersHTTP("http://"+health+"/readyz"))
	controller.mustStart(t)
	s.killable = append(s.killable, controller)
}

func (s *Stack) startExtender(t testing.TB) {
	t.Helper()
	address := loopback.Address(t)
	extender := newProcess("scheduler", s.logs, filepath.Join(s.bin, "azuredisk"), []string{
		"scheduler", "--kubeconfig", s.kubeconfig, "--driver-namespace", s.Namespace, "--address", address,
	}, answersHTTP("http://"+address+"/readyz"))
	extender.mustStart(t)
	s.killable = append(s.killable, extender)
}

// putVM makes a VM at the simulated Azure.
func (s *Stack) putVM(t testing.TB, name string) {
	t.Helper()
	vm := map[string]any{
		"location": Location,
		"properties": map[string]any{
			"hardwareProfile": map[string]any{"vmSize": s.options.VMSize},
			"storageProfile":  map[string]any{"dataDisks": []any{}},
		},
	}
	if s.Zone != "" {
		vm["zones"] = []string{zone}
	}
	call(t, http.MethodPut, fmt.Sprintf(
		"%s/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachines/%s?api-version=%s",
		s.arm, Subscription, ResourceGroup, name, computeV), vm)
}

// Killable returns the processes that may die at any time.
func (s *Stack) Killable() []*Process { return s.killable }

// AwaitLeader waits until a controller leads, and returns it.
func (s *Stack) AwaitLeader(ctx context.Context) (*Process, error) {
	for {
		for _, p := range s.killable {
			if !strings.HasPrefix(p.Name, "controller-") {
				continue
			}
			said, err := os.ReadFile(p.log)
			if err != nil {
				return nil, err
			}
			if bytes.Contains(said, []byte("Successfully acquired lease")) {
				return p, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no controller leads: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Restarts returns how often processes were started again.
func (s *Stack) Restarts() int {
	n := 0
	for _, p := range s.killable {
		n += p.Starts() - 1
	}
	return n
}

// EnsureRunning waits until every process answers.
func (s *Stack) EnsureRunning(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, p := range s.killable {
		if err := p.ready(ctx); err == nil {
			continue
		}
		p.Kill()
		expect.Must(t, p.Start(ctx))
	}
}

func answersAt(network, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
}

func answersHTTP(url string) func(context.Context) error {
	client := &http.Client{Timeout: time.Second}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= 300 {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
		return nil
	}
}

func writeKubeconfig(config *rest.Config, path string) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"stack": {
			Server: config.Host, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"stack": {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"stack": {Cluster: "stack", AuthInfo: "stack"}},
		CurrentContext: "stack",
	}, path)
}
