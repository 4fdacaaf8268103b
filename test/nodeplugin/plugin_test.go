package nodeplugin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/loopback"
	"github.com/azuredisk-csi/azuredisk/provisioner/host/hosttest"
)

const (
	nodeName   = "node-a"
	driverName = "disk.csi.azure.com"
	vmIDs      = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/" // and the node's name
	patience   = 60 * time.Second
)

// machine is a node that the plug-in can be started on again and again.
type machine struct {
	t         *testing.T
	name      string
	api       client.WithWatch
	namespace string
	dir       string // of the kubelet
	links     string
	config    string
	metadata  string
	health    string
	metrics   string
	process   *exec.Cmd
	exited    chan error
	output    *os.File
}

// newMachine makes the machine of nodeName.
func newMachine(t *testing.T) *machine {
	t.Helper()
	return newMachineOf(t, nodeName, apiserver.Namespace(t))
}

// newMachineOf makes a machine with the node's name. The driver is installed in the namespace.
func newMachineOf(t *testing.T, name, namespace string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet")
	expect.Must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"resourceId":%q,"vmSize":"Standard_D4s_v5","location":"eastus","zone":"2"}`, vmIDs+name)
	}))
	t.Cleanup(imds.Close)
	m := &machine{
		t:         t,
		name:      name,
		api:       apiserver.Client(t),
		namespace: namespace,
		dir:       dir,
		links:     t.TempDir(),
		config:    apiserver.Kubeconfig(t),
		metadata:  imds.URL,
		health:    loopback.Address(t),
		metrics:   loopback.Address(t),
	}
	return m
}

func (m *machine) socket() string { return filepath.Join(m.dir, "plugins", driverName, "csi.sock") }

func (m *machine) registration() string {
	return filepath.Join(m.dir, "plugins_registry", driverName+"-reg.sock")
}

func (m *machine) start() {
	m.t.Helper()
	output, err := os.Create(filepath.Join(m.t.TempDir(), "output"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.output = output
	m.process = exec.Command(program, "node", "--node-name="+m.name, "--driver-namespace="+m.namespace, "--kubeconfig="+m.config,
		"--endpoint=unix://"+m.socket(), "--kubelet-dir="+m.dir, "--device-links="+m.links, "--imds-endpoint="+m.metadata,
		"--health-address="+m.health, "--capacity-wait=100ms", "--heartbeat-interval=1s", "--replicated-heartbeat-interval=1s",
		"--log-level=debug", "--metrics-address="+m.metrics, "--disk-metrics")
	m.process.Stdout, m.process.Stderr = output, output
	confine(m.t, m.process)
	if err := m.process.Start(); err != nil {
		m.t.Fatal(err)
	}
	exited := make(chan error, 1)
	process := m.process
	go func() { exited <- process.Wait() }()
	m.exited = exited
	m.t.Cleanup(func() {
		_ = process.Process.Kill()
		if m.t.Failed() {
			raw, _ := os.ReadFile(output.Name())
			m.t.Logf("output of the plug-in:\n%s", raw)
		}
		_ = output.Close()
	})
}

// stop sends a signal and returns how the process ended.
func (m *machine) stop(signal os.Signal) error {
	m.t.Helper()
	if err := m.process.Process.Signal(signal); err != nil {
		m.t.Fatal(err)
	}
	return m.ended()
}

func (m *machine) ended() error {
	m.t.Helper()
	select {
	case err := <-m.exited:
		return err
	case <-time.After(patience):
		m.t.Fatal("the process did not end")
		return nil
	}
}

// register does what the kubelet does when it sees a registration socket.
func (m *machine) register(refusal string) {
	m.t.Helper()
	m.await("the registration socket", func() bool {
		_, err := os.Lstat(m.registration())
		return err == nil
	})
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	kubelet := registration.NewRegistrationClient(dial(m.t, m.registration()))
	info, err := kubelet.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetName() != driverName || info.GetEndpoint() != m.socket() {
		m.t.Fatalf("GetInfo = %v, %v", info, err)
	}
	if refusal == "" {
		node, err := m.csi().NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		if err != nil || node.GetNodeId() != m.name ||
			node.GetAccessibleTopology().GetSegments()["topology.disk.csi.azure.com/zone"] != "eastus-2" {
			m.t.Fatalf("NodeGetInfo = %v, %v", node, err)
		}
	}
	_, err = kubelet.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{
		PluginRegistered: refusal == "",
		Error:            refusal,
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) csi() csi.NodeClient {
	m.t.Helper()
	return csi.NewNodeClient(dial(m.t, m.socket()))
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	expect.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (m *machine) report() *apiv1.AzDriverNode {
	m.t.Helper()
	node := &apiv1.AzDriverNode{}
	err := m.api.Get(m.t.Context(), client.ObjectKey{Namespace: m.namespace, Name: m.name}, node)
	if client.IgnoreNotFound(err) != nil {
		m.t.Fatal(err)
	}
	return node
}

// entries is the report in one line.
func (m *machine) entries() string {
	m.t.Helper()
	var entries []string
	for _, entry := range m.report().Status.StagedVolumes {
		entries = append(entries, fmt.Sprintf("%s:%d:%s", entry.VolumeName, entry.Epoch, entry.Phase))
	}
	return strings.Join(entries, " ")
}

func (m *machine) await(what string, condition func() bool) {
	m.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case err := <-m.exited:
			m.t.Fatalf("the plug-in ended (%v) while the test waited for %s", err, what)
		case <-deadline:
			m.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// newDisk returns a blank disk that shows up at the LUN when attach is called.
func (m *machine) newDisk(lun int32) (disk *hosttest.Disk, attach func()) {
	m.t.Helper()
	disk = hosttest.NewDisk(m.t, 64*hosttest.MiB)
	return disk, func() { disk.Link(m.t, m.links, lun) }
}
