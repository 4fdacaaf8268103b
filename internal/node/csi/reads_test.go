package csi_test

import (
	"context"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Every read delays the start of a pod. The node reads volume and attachment before the
// announcement, which needs the epoch, and after it, for law 2. It reads the attachment after the
// device was found, because the LUN may have changed, and both after the mount, because a check
// before the mount can take hours.
func TestTheReadsOfNodeStageAndNodePublish(t *testing.T) {
	t.Parallel()
	const volume, attachment = "volume", "attachment"
	for kind, test := range map[string][]string{
		"filesystem": {volume, attachment, volume, attachment, attachment, volume, attachment},
		"raw block":  {volume, attachment, volume, attachment, attachment},
	} {
		t.Run(kind, func(t *testing.T) {
			m := newMachine(t, newMemoryHost(), t.TempDir(), quiet)
			m.publish(nil)
			var reads []string
			m.api = interceptor.NewClient(m.api, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
					opts ...client.GetOption) error {
					switch obj.(type) {
					case *apiv1.AzVolume:
						reads = append(reads, volume)
					case *apiv1.AzVolumeAttachment:
						reads = append(reads, attachment)
					default: // the report, which a process reads once
						reads = append(reads, "report")
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
			s, capability := m.start(), kindsOfVolume()[kind]
			m.must(m.stage(s, capability))
			m.must(m.unstage(s))
			reads = nil
			m.must(m.stage(s, capability))
			if !slices.Equal(reads, test) {
				t.Errorf("NodeStageVolume read %v, want %v", reads, test)
			}
			reads = nil
			m.must(m.publishVolume(s, capability, false))
			if want := []string{volume, attachment}; !slices.Equal(reads, want) {
				t.Errorf("NodePublishVolume read %v, want %v", reads, want)
			}
		})
	}
}
