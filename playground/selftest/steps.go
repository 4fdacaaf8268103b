package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/poll"
	"github.com/azuredisk-csi/azuredisk/playground/state"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

const (
	metadataURL = "http://169.254.169.254/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	eventsURL   = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
)

func (t *test) service(ctx context.Context) error {
	for _, node := range t.Plan.Nodes {
		pod := t.podOn(node.Name, "serve", ":8080")
		pod.Name, pod.GenerateName = "server-"+node.Name, ""
		if _, err := t.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	_, err := t.kube.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "servers", Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "serve"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, node := range t.Plan.Nodes {
		if err := t.expect(ctx, t.podOn(node.Name, "get", "http://servers.default.svc.cluster.local/"),
			"200 server-node-"); err != nil {
			return err
		}
	}
	return nil
}

func (t *test) endpoints(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "collected")
		}),
	}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	collector, err := t.Expose(ctx, listener.Addr().String())
	if err != nil {
		return err
	}
	status, err := t.Status(ctx)
	if err != nil {
		return err
	}
	hostNetwork := t.podOn("node-2", "get", "https://"+t.Plan.APIService().String()+"/version")
	hostNetwork.Spec.HostNetwork = true
	return errors.Join(
		t.expect(ctx, t.podOn("node-1", "get", "https://kubernetes.default.svc.cluster.local/version"),
			t.Options.Kubernetes.Version),
		t.expect(ctx, hostNetwork, t.Options.Kubernetes.Version),
		t.expect(ctx, t.podOn("node-3", "get", status.Azure+"/subscriptions/"+topology.SubscriptionID+"?api-version=2022-12-01"),
			"401"),
		t.expect(ctx, t.podOn("node-4", "get", "http://"+collector), "collected"),
	)
}

func (t *test) metadata(ctx context.Context) error {
	pod := t.podOn("node-3", "get", metadataURL, "Metadata", "true")
	pod.Spec.HostNetwork = true
	return t.expect(ctx, pod, "200 node-3")
}

// What the disk of the test is.
const (
	lun           = 3
	device        = "/dev/disk/azure/data/by-lun/3"
	diskVersion   = "2025-01-02"
	vmVersion     = "2025-04-01"
	attachDetach  = "attachDetachDataDisks"
	deviceFolder  = "/dev/disk/azure/scsi1"
	deviceContent = "written through a real device"
)

type object = map[string]any

// diskID is the ID of a disk of that name beside the VM.
func diskID(vm topology.Node, name string) string {
	return strings.TrimSuffix(vm.ResourceID(), "virtualMachines/"+vm.Name) + "disks/" + name
}

// makeDisk makes a disk that can be attached to so many nodes, in all zones, and attaches it to
// those.
func (t *test) makeDisk(ctx context.Context, name string, shares int, nodes ...topology.Node) error {
	client, err := t.AzureClient(ctx)
	if err != nil {
		return err
	}
	disk := diskID(nodes[0], name)
	err = client.Put(ctx, disk, diskVersion, object{
		"location": topology.Region,
		"sku":      object{"name": "Premium_ZRS"},
		"properties": object{
			"diskSizeGB":   4,
			"maxShares":    shares,
			"creationData": object{"createOption": "Empty"},
		},
	})
	if err != nil {
		return fmt.Errorf("make a disk: %w", err)
	}
	for _, vm := range nodes {
		err = client.Post(ctx, vm.ResourceID(), attachDetach, vmVersion, object{
			"dataDisksToAttach": []object{{"diskId": disk, "lun": lun}},
		})
		if err != nil {
			return fmt.Errorf("attach it to %s: %w", vm.Name, err)
		}
	}
	return nil
}

// deleteDisk detaches a disk from the nodes and deletes it.
func (t *test) deleteDisk(ctx context.Context, name string, nodes ...topology.Node) error {
	client, err := t.AzureClient(ctx)
	if err != nil {
		return err
	}
	disk := diskID(nodes[0], name)
	for _, vm := range nodes {
		err = client.Post(ctx, vm.ResourceID(), attachDetach, vmVersion, object{"dataDisksToDetach": []object{{"diskId": disk}}})
		if err != nil {
			return fmt.Errorf("detach it from %s: %w", vm.Name, err)
		}
	}
	return client.Delete(ctx, disk, diskVersion)
}

// attachDisk makes a disk and attaches it to the first node.
func (t *test) attachDisk(ctx context.Context) error {
	if err := t.makeDisk(ctx, "selftest", 1, t.Plan.Nodes[0]); err != nil {
		return err
	}
	devices, err := host.LoopDevices(string(t.Dir), t.loops)
	if err == nil && len(devices) != 1 {
		err = fmt.Errorf("there are the loop devices %v, where one was expected", devices)
	}
	return err
}

func (t *test) disk(ctx context.Context) error {
	if err := t.attachDisk(ctx); err != nil {
		return err
	}
	vm := t.Plan.Nodes[0]
	err := errors.Join(
		t.expect(ctx, t.podWithDevices(vm.Name, "list", deviceFolder), fmt.Sprint("lun", lun)),
		t.expect(ctx, t.podWithDevices(vm.Name, "write", device, deviceContent), ""),
		t.expect(ctx, t.podWithDevices(vm.Name, "read", device, fmt.Sprint(len(deviceContent))), deviceContent),
		t.expectNoDisk(ctx, "node-2"),
	)
	if err != nil {
		return err
	}
	if err := t.deleteDisk(ctx, "selftest", vm); err != nil {
		return err
	}
	return t.expectNoDisk(ctx, vm.Name)
}

// reservations has pods use the ioctls of linux/pr.h, which the loop devices below the
// disks lack.
func (t *test) reservations(ctx context.Context) error {
	a, b := t.Plan.Nodes[0], t.Plan.Nodes[1]
	if err := t.makeDisk(ctx, "shared", 2, a, b); err != nil {
		return err
	}
	err := errors.Join(
		t.expect(ctx, t.podWithDevices(a.Name, "reserve", device, "0x1"), ""),
		t.expect(ctx, t.podWithDevices(a.Name, "write", device, deviceContent), ""),
		t.expectFailure(ctx, t.podWithDevices(b.Name, "write", device, "by a node without the reservation")),
		t.expectFailure(ctx, t.podWithDevices(b.Name, "reserve", device, "0x2")),
		t.expect(ctx, t.podWithDevices(b.Name, "reserve", device, "0x2", "0x1"), ""),
		t.expectFailure(ctx, t.podWithDevices(a.Name, "write", device, "by a node that lost the reservation")),
		t.expect(ctx, t.podWithDevices(b.Name, "read", device, fmt.Sprint(len(deviceContent))), deviceContent),
	)
	if err != nil {
		return err
	}
	return t.deleteDisk(ctx, "shared", a, b)
}

func (t *test) expectNoDisk(ctx context.Context, node string) error {
	output, err := t.try(ctx, t.podWithDevices(node, "list", deviceFolder))
	if err == nil && output != "" {
		err = fmt.Errorf("%s has disks: %q", node, output)
	}
	return err
}

// kill kills the supervisor with SIGKILL.
func (t *test) kill(ctx context.Context) error {
	id, alive, err := t.Dir.Supervisor()
	if err != nil || !alive {
		return errors.Join(err, errors.New("there is no supervisor"))
	}
	pid, err := t.NodePID(ctx, "node-3")
	if err != nil {
		return err
	}
	if err := syscall.Kill(id.PID, syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(pollEvery) {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if !id.Alive() && errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return errors.New("it, or a node, is still alive")
}

// podWithDevices is a privileged pod that has the node's /dev.
func (t *test) podWithDevices(node string, args ...string) *corev1.Pod {
	pod := t.podOn(node, args...)
	pod.Spec.Volumes = []corev1.Volume{{
		Name:         "dev",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}},
	}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "dev", MountPath: "/dev"}}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	return pod
}

func (t *test) power(ctx context.Context) error {
	const name = "node-1"
	pid, err := t.NodePID(ctx, name)
	if err != nil {
		return err
	}
	running, err := processesOf(pid)
	if err != nil {
		return err
	}
	if running < 5 {
		return fmt.Errorf("the host sees only %d processes of %s", running, name)
	}
	if err := t.PowerOff(ctx, name); err != nil {
		return err
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		return fmt.Errorf("process %d of %s is still there", pid, name)
	}
	again := time.Now()
	if err := t.PowerOn(ctx, name); err != nil {
		return err
	}
	if err := t.awaitReady(ctx, name, again); err != nil {
		return err
	}
	// Its images were on its disk, its network is there again.
	return t.expect(ctx, t.podOn(name, "get", "http://servers.default.svc.cluster.local/"), "200 server-node-")
}

func (t *test) network(ctx context.Context) error {
	const name = "node-2"
	if err := t.Partition(ctx, name); err != nil {
		return err
	}
	// The API server reaches a kubelet for logs: now it must not.
	reach, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := t.kube.CoreV1().Pods(namespace).GetLogs("server-"+name, &corev1.PodLogOptions{}).DoRaw(reach); err == nil {
		return errors.New("its kubelet is still reached")
	}
	if err := t.Heal(ctx, name); err != nil {
		return err
	}
	return poll.Until(ctx, podTimeout, pollEvery, "its kubelet is reached again", func(ctx context.Context) error {
		_, err := t.kube.CoreV1().Pods(namespace).GetLogs("server-"+name, &corev1.PodLogOptions{}).DoRaw(ctx)
		return err
	})
}

// freeze announces the freeze of a node, reads the announcement inside, and watches the node from
// outside.
func (t *test) freeze(ctx context.Context) error {
	const name, length, notice = "node-3", 3 * time.Second, 30 * time.Second
	type result struct {
		freeze state.Freeze
		err    error
	}
	done := make(chan result, 1)
	go func() {
		notice := notice
		freeze, err := t.Freeze(ctx, name, length, &notice)
		done <- result{freeze, err}
	}()
	admin, err := t.AzureAdmin(ctx)
	if err != nil {
		return err
	}
	var event azure.ScheduledEvent
	err = poll.Until(ctx, notice, pollEvery, "the freeze is announced", func(ctx context.Context) error {
		all, err := admin.ScheduledEvents(ctx)
		if err == nil && len(all) != 1 {
			return fmt.Errorf("there are %d events", len(all))
		}
		if err == nil {
			event = all[0]
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := t.expect(ctx, t.eventsOn(name), event.ID); err != nil {
		return err
	}
	if err := t.waitForFreeze(ctx, name, true); err != nil {
		return err
	}
	reach, cancel := context.WithTimeout(ctx, length/3)
	defer cancel()
	if _, err := t.kube.CoreV1().Pods(namespace).GetLogs("server-"+name, &corev1.PodLogOptions{}).DoRaw(reach); err == nil {
		return fmt.Errorf("the kubelet of %s answers although the node is frozen", name)
	}
	got := <-done
	if got.err != nil {
		return got.err
	}
	if took := got.freeze.Thawed.Sub(got.freeze.Frozen); took < length || took > 2*length {
		return fmt.Errorf("%s was frozen for %s, want %s", name, took, length)
	}
	return errors.Join(t.waitForFreeze(ctx, name, false), t.expect(ctx, t.eventsOn(name), `"Events":[]`),
		t.expect(ctx, t.podOn(name, "get", "http://servers.default.svc.cluster.local/"), "200 server-node-"))
}

// eventsOn is a pod that reads the scheduled events of the node.
func (t *test) eventsOn(node string) *corev1.Pod {
	pod := t.podOn(node, "get", eventsURL, "Metadata", "true")
	pod.Spec.HostNetwork = true
	return pod
}

func (t *test) waitForFreeze(ctx context.Context, name string, want bool) error {
	return poll.Until(ctx, podTimeout, pollEvery, fmt.Sprintf("%s is frozen: %t", name, want), func(ctx context.Context) error {
		status, err := t.Status(ctx)
		if err == nil && !slices.ContainsFunc(status.Nodes,
			func(n state.NodeStatus) bool { return n.Name == name && n.Frozen == want }) {
			err = fmt.Errorf("the nodes are %+v", status.Nodes)
		}
		return err
	})
}

// freezeLong freezes a node and returns before it goes on.
func (t *test) freezeLong(ctx context.Context) error {
	const name = "node-2"
	failed := make(chan error, 1)
	go func() {
		_, err := t.Freeze(context.WithoutCancel(ctx), name, time.Hour, nil)
		failed <- err
	}()
	if err := t.waitForFreeze(ctx, name, true); err != nil {
		select {
		case because := <-failed:
			err = errors.Join(because, err)
		default:
		}
		return err
	}
	return nil
}

func (t *test) deallocate(ctx context.Context) error {
	const name = "node-4"
	client, err := t.AzureClient(ctx)
	if err != nil {
		return err
	}
	node, err := t.Plan.Node(name)
	if err != nil {
		return err
	}
	if err := client.Post(ctx, node.ResourceID(), "deallocate", vmVersion, nil); err != nil {
		return err
	}
	if err := t.waitForPower(ctx, name, false); err != nil {
		return err
	}
	if err := client.Post(ctx, node.ResourceID(), "start", vmVersion, nil); err != nil {
		return err
	}
	return t.waitForPower(ctx, name, true)
}

func (t *test) waitForPower(ctx context.Context, name string, on bool) error {
	return poll.Until(ctx, podTimeout, pollEvery, fmt.Sprintf("%s has power: %t", name, on), func(ctx context.Context) error {
		pid, err := t.NodePID(ctx, name)
		switch {
		case on:
			return err
		case err == nil:
			return fmt.Errorf("its first process is %d", pid)
		}
		return nil
	})
}
