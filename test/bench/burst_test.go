package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/test/stack"
)

// BenchmarkBurst publishes and unpublishes volumes at one VM at once, through the real controller
// plug-in over a real API server: with VolumeAttachments by CSI calls as csi-attacher makes them,
// without them by pods. Times end when the driver knows that the last disk is attached, or
// detached.
func BenchmarkBurst(b *testing.B) {
	b.Run("with VolumeAttachments", func(b *testing.B) { burst(b, true) })
	b.Run("without VolumeAttachments", func(b *testing.B) { burst(b, false) })
}

// goal is what the V1 driver needs on the same simulator; 0 for no goal.
type goal struct {
	updates, calls int
	seconds        float64
}

func burst(b *testing.B, attachRequired bool) {
	raw, err := json.Marshal(profile())
	must(b, err)
	file := filepath.Join(b.TempDir(), "latency.json")
	must(b, os.WriteFile(file, raw, 0o600))
	l := openLab(b, file, attachRequired)
	for range b.N {
		first := l.makeVolumes(b, volumes)
		half := first[:volumes/2]
		l.measure(b, "publish 40", goal{1, 48, 22.0}, first, nil)
		l.measure(b, "unpublish 20, publish 20", goal{updates: 1}, l.makeVolumes(b, volumes/2), half)
		l.measure(b, "unpublish 40", goal{1, 7, 21.7}, nil, l.published())
		l.measure(b, "publish 1", goal{updates: 1}, first[:1], nil)
		l.measure(b, "unpublish 1", goal{updates: 1}, nil, first[:1])
	}
}

// lab is the driver over a simulator with Azure's quotas.
type lab struct {
	*stack.Stack
	sim            *simulator
	attachRequired bool
	made           int
	onNode         map[string]volume // by AzVolume
}

// volume is a volume that a node may use.
type volume struct {
	*csi.Volume
	name string // of its PersistentVolume, claim and pod
}

// record is the name of the volume's AzVolume.
func (v volume) record(b *testing.B) string {
	handle, err := volumehandle.Parse(v.VolumeId)
	must(b, err)
	return handle.VolumeName()
}

// profile is that of the measurements of issue 13: an update of a VM takes 11.5 s, and 0.2 s more
// for each further disk; a call takes 80 ms.
func profile() *latency.Profile {
	exactly := func(d time.Duration) latency.Range {
		return latency.Range{Min: latency.Duration(d), Max: latency.Duration(d)}
	}
	return &latency.Profile{Steps: map[latency.Step]latency.Range{
		latency.Request: exactly(80 * time.Millisecond), latency.PerDisk: exactly(200 * time.Millisecond),
		latency.Attach: exactly(11500 * time.Millisecond), latency.Detach: exactly(11500 * time.Millisecond),
		latency.DiskCreate: exactly(time.Second),
	}}
}

// openLab starts the driver over a simulator with a latency profile of that name or file.
func openLab(b *testing.B, latencies string, attachRequired bool) *lab {
	b.Helper()
	s := stack.Start(b, stack.Options{
		Nodes:       1,
		Controllers: 1,
		VMSize:      "Standard_M64s",
		NoDevices:   true,
		AzureFlags:  []string{"--latency", latencies, "--throttle", "on"},
		// The stack's lease is too short for a machine that does other work beside.
		ControllerFlags: []string{fmt.Sprintf("--attach-required=%t", attachRequired), "--lease-duration=15s",
			"--renew-deadline=10s"},
	})
	return &lab{
		Stack:          s,
		sim:            &simulator{admin: s.Admin},
		attachRequired: attachRequired,
		onNode:         map[string]volume{},
	}
}

// makeVolumes creates volumes, and without VolumeAttachments their PersistentVolumes and claims.
func (l *lab) makeVolumes(b *testing.B, n int) []volume {
	b.Helper()
	made := make([]volume, n)
	for i := range made {
		l.made++
		made[i].name = fmt.Sprintf("%s-%d", l.Namespace, l.made)
	}
	failures := make([]error, n)
	together(n, func(i int) {
		made[i].Volume, failures[i] = l.CreateVolume(b.Context(), made[i].name, 8<<30,
			map[string]string{"skuName": "Premium_LRS"})
	})
	expect.Must(b, errors.Join(failures...))
	if !l.attachRequired {
		together(n, func(i int) { l.bind(b, made[i]) })
	}
	return made
}

// bind makes the PersistentVolume of a volume, and a claim that it is bound to.
func (l *lab) bind(b *testing.B, v volume) {
	b.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      size,
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{Namespace: l.Namespace, Name: v.name},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver:       "disk.csi.azure.com",
			VolumeHandle: v.VolumeId,
		}},
	}}
	must(b, l.Kube.Create(b.Context(), pv))
	b.Cleanup(func() {
		ctx := context.WithoutCancel(b.Context())
		must(b, l.Kube.Patch(ctx, pv, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`))))
		must(b, client.IgnoreNotFound(l.Kube.Delete(ctx, pv)))
	})
	must(b, l.Kube.Create(b.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: v.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      pv.Spec.AccessModes,
			Resources:        corev1.VolumeResourceRequirements{Requests: size},
			VolumeName:       v.name,
			StorageClassName: ptr.To(""),
		},
	}))
}

// together calls do for 0 to n-1 at once.
func together(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// measure publishes and unpublishes volumes at once, and prints what that took.
func (l *lab) measure(b *testing.B, what string, v1 goal, publish, unpublish []volume) {
	b.Helper()
	l.sim.forget(b)
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	for _, v := range unpublish {
		all.Go(func() { must(b, l.unpublish(ctx, v)) })
		delete(l.onNode, v.record(b))
	}
	for _, v := range publish {
		all.Go(func() { must(b, l.publish(ctx, v)) })
		l.onNode[v.record(b)] = v
	}
	all.Wait()
	must(b, l.Await(ctx, &apiv1.AzVolumeAttachmentList{}, l.missing))
	took, calls := time.Since(began), l.sim.calls(b)
	mode := "without VolumeAttachments"
	if l.attachRequired {
		mode = "with VolumeAttachments"
	}
	first := ""
	if calls.updates > 0 {
		first = fmt.Sprintf("; the first VM update came after %.0f ms", calls.firstUpdate.Sub(began).Seconds()*1000)
	}
	fmt.Printf("%s, %s: %d VM updates, %d polls, %d calls in all (%v), %d answered 429, %.1f s%s\n",
		mode, what, calls.updates, calls.polls, calls.all, calls.byAPI, calls.throttled, took.Seconds(), first)
	if calls.throttled > 0 || calls.updates > v1.updates || v1.calls > 0 &&
		(calls.all > v1.calls || took.Seconds() > v1.seconds) {
		b.Errorf("%s, %s: got %d VM updates, %d calls (%d answered 429), %.1f s; want at most %+v, and none answered 429",
			mode, what, calls.updates, calls.all, calls.throttled, took.Seconds(), v1)
	}
}

func (l *lab) publish(ctx context.Context, v volume) error {
	if l.attachRequired {
		_, err := l.Controller().ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId:         v.VolumeId,
			NodeId:           l.Nodes[0].Name,
			VolumeCapability: stack.MountCapability(""),
			VolumeContext:    v.VolumeContext,
		})
		return err
	}
	return l.Kube.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: v.name},
		Spec: corev1.PodSpec{
			NodeName:                     l.Nodes[0].Name,
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name:  "c",
				Image: "image",
			}},
			Volumes: []corev1.Volume{{
				Name: "data",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.name},
				},
			}},
		},
	})
}

func (l *lab) unpublish(ctx context.Context, v volume) error {
	if l.attachRequired {
		_, err := l.Controller().ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
			VolumeId: v.VolumeId,
			NodeId:   l.Nodes[0].Name,
		})
		return err
	}
	return l.Kube.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.Namespace,
		Name:      v.name,
	}}, client.GracePeriodSeconds(0))
}

// missing says what is not yet attached, or not yet detached.
func (l *lab) missing(list client.ObjectList) string {
	attached, left := 0, 0
	for _, a := range list.(*apiv1.AzVolumeAttachmentList).Items {
		switch _, wanted := l.onNode[a.Spec.VolumeName]; {
		case !wanted:
			left++
		case a.Status.State == apiv1.AttachmentAttached && a.DeletionTimestamp == nil:
			attached++
		}
	}
	if attached == len(l.onNode) && left == 0 {
		return ""
	}
	return fmt.Sprintf("%d disks are attached, expected %d; %d are to be detached", attached, len(l.onNode), left)
}

func (l *lab) published() []volume {
	var all []volume
	for _, v := range l.onNode {
		all = append(all, v)
	}
	return all
}
