package csi_test

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	csinode "github.com/azuredisk-csi/azuredisk/internal/node/csi"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// call is a call of a plug-in.
type call = func(*machine, *csinode.Server) error

// ask returns the call of a method with a request.
func ask[Q, A any](method func(*csinode.Server, context.Context, Q) (A, error), request Q) call {
	return func(m *machine, s *csinode.Server) error {
		_, err := method(s, m.t.Context(), request)
		return err
	}
}

// TestCodes has the rows of docs/reference/errors.md that no other test shows. test/docs/errors.yaml
// names its cases. The volume is published to the node, and not staged.
func TestCodes(t *testing.T) {
	t.Parallel()
	const none = "nonsense"
	stage := func(edit func(*csi.NodeStageVolumeRequest)) call {
		return func(m *machine, s *csinode.Server) error {
			request := &csi.NodeStageVolumeRequest{
				VolumeId: volumeID, StagingTargetPath: m.stagingPath(), VolumeCapability: mountCapability("ext4"),
			}
			edit(request)
			return ask((*csinode.Server).NodeStageVolume, request)(m, s)
		}
	}
	publish := func(edit func(*csi.NodePublishVolumeRequest)) call {
		request := &csi.NodePublishVolumeRequest{
			VolumeId: volumeID, StagingTargetPath: "/staging", TargetPath: "/target", VolumeCapability: mountCapability("ext4"),
		}
		edit(request)
		return ask((*csinode.Server).NodePublishVolume, request)
	}
	unstage := func(id, path string) call {
		return ask((*csinode.Server).NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: path})
	}
	unpublish := func(id, path string) call {
		return ask((*csinode.Server).NodeUnpublishVolume, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path})
	}
	stats := func(id, path string) call {
		return ask((*csinode.Server).NodeGetVolumeStats, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
	}
	health := func(id string) call {
		return ask((*csinode.Server).NodeGetVolumeHealth, &csi.NodeGetVolumeHealthRequest{VolumeId: id})
	}
	expand := func(id, path string) call {
		return ask((*csinode.Server).NodeExpandVolume, &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: path})
	}
	// away makes the API server answer no read.
	away := func(m *machine, _ *memoryHost) {
		m.api = interceptor.NewClient(m.api, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return apierrors.NewServiceUnavailable("the API server is away")
			},
		})
	}
	for name, test := range map[string]struct {
		want   codes.Code
		before func(*machine, *memoryHost)
		calls  []call
	}{
		"NodeStageVolume without ID, path or capability": {want: codes.InvalidArgument, calls: []call{
			stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = "" }),
			stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "" }),
			stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "s" }),
			stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "/a/../s" }),
			stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nil }),
			stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessType = nil }),
			stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability.AccessMode = nil }),
		}},
		"NodeStageVolume outside of the kubelet's directory": {want: codes.InvalidArgument, calls: []call{
			stage(func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "/elsewhere/globalmount" }),
		}},
		"NodeStageVolume of a filesystem that cannot be used": {want: codes.InvalidArgument, calls: []call{
			stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = mountCapability("ntfs") }),
			stage(func(r *csi.NodeStageVolumeRequest) {
				r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
			}),
		}},
		"NodeStageVolume of a volume that does not exist": {want: codes.NotFound, calls: []call{
			stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = secondID }),
			stage(func(r *csi.NodeStageVolumeRequest) { r.VolumeId = none }),
		}},
		"NodeStageVolume of a filesystem to repair": {
			want: codes.FailedPrecondition,
			before: func(_ *machine, h *memoryHost) {
				h.MountFails = provisioner.Errorf(provisioner.FailedPrecondition, "must be repaired manually")
			},
			calls: []call{stage(func(*csi.NodeStageVolumeRequest) {})},
		},
		"NodeStageVolume of a device that does not answer": {
			want:   codes.Unavailable,
			before: func(_ *machine, h *memoryHost) { h.Answering = nil },
			calls:  []call{stage(func(*csi.NodeStageVolumeRequest) {})},
		},
		"calls that cannot read at the API server": {want: codes.Unavailable, before: away, calls: []call{
			stage(func(*csi.NodeStageVolumeRequest) {}),
			health(volumeID),
			ask((*csinode.Server).NodeGetInfo, &csi.NodeGetInfoRequest{}),
		}},
		"NodeUnstageVolume without ID or path": {want: codes.InvalidArgument, calls: []call{
			unstage("", "/staging"), unstage(volumeID, ""), unstage(volumeID, "staging"),
		}},
		"NodeUnstageVolume of an ID that is no disk's": {want: codes.OK, calls: []call{unstage(none, "/staging")}},
		"NodePublishVolume without ID, path or capability": {want: codes.InvalidArgument, calls: []call{
			publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }),
			publish(func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" }),
			publish(func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "staging" }),
			publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }),
		}},
		"NodePublishVolume of an ID that is no disk's": {want: codes.NotFound, calls: []call{
			publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeId = none }),
		}},
		"NodePublishVolume of a volume that is not staged": {want: codes.FailedPrecondition, calls: []call{
			publish(func(*csi.NodePublishVolumeRequest) {}),
		}},
		"NodePublishVolume fails where the volume is published": {
			want: codes.Unavailable,
			before: func(m *machine, h *memoryHost) {
				h.Mounted["/target"] = provisioner.MountPoint{Source: memoryDevice, Target: "/target"}
			},
			calls: []call{publish(func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil })},
		},
		"NodeUnpublishVolume without ID or path": {want: codes.InvalidArgument, calls: []call{
			unpublish("", "/target"), unpublish(volumeID, ""), unpublish(volumeID, "target"),
		}},
		"NodeGetVolumeStats without ID or path": {want: codes.InvalidArgument, calls: []call{
			stats("", "/target"), stats(volumeID, ""),
		}},
		"NodeGetVolumeStats where the volume is not": {want: codes.NotFound, calls: []call{
			stats(volumeID, "/target"), stats(none, "/target"),
		}},
		"NodeGetVolumeHealth without ID":              {want: codes.InvalidArgument, calls: []call{health("")}},
		"NodeGetVolumeHealth where the volume is not": {want: codes.NotFound, calls: []call{health(secondID), health(none)}},
		"NodeExpandVolume without ID or path": {want: codes.InvalidArgument, calls: []call{
			expand("", "/target"), expand(volumeID, ""),
		}},
		"NodeExpandVolume where the volume is not": {want: codes.NotFound, calls: []call{
			expand(volumeID, "/target"), expand(none, "/target"),
		}},
		"NodeExpandVolume of a partition": {want: codes.FailedPrecondition, calls: []call{
			func(m *machine, s *csinode.Server) error {
				m.must(m.stageWith(s, mountCapability("ext4"), map[string]string{"partition": "1"}))
				return m.expand(s, m.stagingPath(), 2<<30)
			},
		}},
		"NodeGetCapabilities": {want: codes.OK, calls: []call{
			ask((*csinode.Server).NodeGetCapabilities, &csi.NodeGetCapabilitiesRequest{}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			host := newMemoryHost()
			m := newMachine(t, host, t.TempDir(), quiet)
			m.edit = func(o *csinode.Options) { o.Limit.Volumes = 0 } // NodeGetInfo reads the number
			m.publish(nil)
			if test.before != nil {
				test.before(m, host)
			}
			s := m.start()
			for _, c := range test.calls {
				wantCode(t, c(m, s), test.want)
			}
		})
	}
}

func TestASecondCallForAVolumeIsAborted(t *testing.T) {
	t.Parallel()
	host := newMemoryHost()
	m := newMachine(t, host, t.TempDir(), quiet)
	m.publish(nil)
	s, capability := m.start(), mountCapability("ext4")
	calls := callsFor(t, s, volumeID, m.stagingPath(), m.target(), m.target(), capability)
	calls["NodeUnstageVolume"] = func() error { return m.unstage(s) }
	calls["NodeUnpublishVolume"] = func() error { return m.unpublishVolume(s) }
	delete(calls, "NodeGetVolumeStats")
	delete(calls, "NodeGetVolumeHealth")
	checked := false
	host.OnCheck = func(string) error {
		checked = true
		for _, call := range calls {
			wantCode(t, call(), codes.Aborted, "another call for volume")
		}
		return nil
	}
	if err := m.stage(s, capability); err != nil || !checked {
		t.Errorf("the first call: got %v, want success; the others were made during it: %t, want true", err, checked)
	}
}
