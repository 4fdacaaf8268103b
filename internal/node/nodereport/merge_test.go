package nodereport

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// proves reports whether a controller that reads the report now takes a volume for unstaged.
func proves(t *testing.T, api client.Client, volume string) bool {
	t.Helper()
	proof, _ := ownership.UnstagedProof(get(t, api), volume, 1, time.Time{})
	return proof != nil
}

func putStatus(t *testing.T, api client.Client, edit func(*apiv1.AzDriverNodeStatus)) {
	t.Helper()
	node := get(t, api)
	edit(&node.Status)
	if err := api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// replace makes the object again, as a restore from a backup does.
func replace(t *testing.T, api client.Client, uid types.UID, status apiv1.AzDriverNodeStatus) {
	t.Helper()
	node := get(t, api)
	if err := api.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node = &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace,
		Name:      nodeName,
		UID:       uid,
	}, Spec: node.Spec}
	if err := api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	putStatus(t, api, func(s *apiv1.AzDriverNodeStatus) { *s = status })
}

// The volumes "v" and "w" are staged here, "gone" was, and older is the status of when only "gone"
// was.
func TestTheNodeRestoresWhatOthersDidToItsReport(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, api client.Client, older apiv1.AzDriverNodeStatus)
		// consistent says that the report looks as the node wrote it at another time, so that the
		// controller cannot tell.
		consistent bool
	}{
		"an entry is taken out": {change: func(t *testing.T, api client.Client, _ apiv1.AzDriverNodeStatus) {
			putStatus(t, api, func(s *apiv1.AzDriverNodeStatus) { s.StagedVolumes = s.StagedVolumes[1:] })
		}},
		"an entry is of another volume": {change: func(t *testing.T, api client.Client, _ apiv1.AzDriverNodeStatus) {
			putStatus(t, api, func(s *apiv1.AzDriverNodeStatus) { s.StagedVolumes[0].VolumeName = "x" })
		}},
		"the status is dropped": {change: func(t *testing.T, api client.Client, _ apiv1.AzDriverNodeStatus) {
			putStatus(t, api, func(s *apiv1.AzDriverNodeStatus) { *s = apiv1.AzDriverNodeStatus{} })
		}},
		"the object is made again without a status": {change: func(t *testing.T, api client.Client, _ apiv1.AzDriverNodeStatus) {
			replace(t, api, "", apiv1.AzDriverNodeStatus{})
		}},
		"the object is made again with an older status": {change: func(t *testing.T, api client.Client,
			older apiv1.AzDriverNodeStatus) {
			replace(t, api, "", older)
		}},
		"an older version is restored": {
			consistent: true,
			change: func(t *testing.T, api client.Client, older apiv1.AzDriverNodeStatus) {
				putStatus(t, api, func(s *apiv1.AzDriverNodeStatus) { *s = older })
			},
		},
		"the version of an older process is restored": {
			consistent: true,
			change: func(t *testing.T, api client.Client, older apiv1.AzDriverNodeStatus) {
				older.BootID, older.MountsScannedTime = oldBootID, &metav1.MicroTime{Time: time.Date(2020, 1, 1, 0, 0, 0, 0,
					time.UTC)}
				putStatus(t, api, func(s *apiv1.AzDriverNodeStatus) { *s = older })
			},
		},
		"epoch and phase are altered": {
			consistent: true,
			change: func(t *testing.T, api client.Client, _ apiv1.AzDriverNodeStatus) {
				putStatus(t, api, func(s *apiv1.AzDriverNodeStatus) {
					s.StagedVolumes[0].Epoch, s.StagedVolumes[0].Phase = 1, apiv1.PhaseUnstaging
				})
			},
		},
	}
	for name, test := range tests {
		for next, write := range map[string]func(*testing.T, *Reporter) error{
			"heartbeat": func(t *testing.T, r *Reporter) error { _, err := r.beat(t.Context()); return err },
			"unstage of another volume": func(t *testing.T,
				r *Reporter) error {
				return r.BeginUnstage(t.Context(), "another")
			},
			"entry that is there already": func(t *testing.T, r *Reporter) error { return r.Announce(t.Context(), "v", 2, "/v") },
		} {
			t.Run(name+", then "+next, func(t *testing.T) {
				api := newAPI(t)
				r, _ := newReporter(t, api, newScanner(t, &mountList{}))
				r.SetReady(true, "Serving", "")
				ctx := t.Context()
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				must(r.Confirm(ctx, apiv1.StagedVolume{VolumeName: "gone", Epoch: 1}))
				older := get(t, api).Status
				must(r.Confirm(ctx, apiv1.StagedVolume{VolumeName: "v", Epoch: 2}))
				must(r.Confirm(ctx, apiv1.StagedVolume{VolumeName: "w", Epoch: 1}))
				must(r.Forget(ctx, "gone"))
				if proves(t, api, "v") || !proves(t, api, "gone") {
					t.Fatalf("before: v unstaged = %t, gone unstaged = %t, want false and true", proves(t, api, "v"),
						proves(t, api, "gone"))
				}
				test.change(t, api, older)
				if !test.consistent && proves(t, api, "v") {
					t.Error("the report that was changed proves that v is unstaged")
				}
				must(write(t, r))
				node := get(t, api)
				if got, want := describe(node), "v:2:Staged w:1:Staged"; got != want {
					t.Errorf("entries = %q, want %q", got, want)
				}
				if proves(t, api, "v") || !proves(t, api, "gone") {
					t.Errorf("v unstaged = %t, gone unstaged = %t, want false and true", proves(t, api, "v"),
						proves(t, api, "gone"))
				}
				if node.Status.BootID != bootID || node.Status.MountsScannedTime == nil {
					t.Errorf("boot ID = %q, scanned at %v; want those of this process", node.Status.BootID,
						node.Status.MountsScannedTime)
				}
				_, err := r.beat(ctx)
				must(err)
				if ready := get(t, api).Status.Conditions; !meta.IsStatusConditionTrue(ready, apiv1.NodeConditionPluginReady) {
					t.Errorf("conditions = %v, want Ready", ready)
				}
			})
		}
	}
}

// A controller that writes its part of the status at the same time changes nothing of the report.
func TestTheControllersPartOfTheStatusKeepsTheProof(t *testing.T) {
	api := newAPI(t)
	r, _ := newReporter(t, api, newScanner(t, &mountList{}))
	if err := r.Announce(t.Context(), "v", 1, "/v"); err != nil {
		t.Fatal(err)
	}
	if err := writeCapacity(t.Context(), api, 16); err != nil {
		t.Fatal(err)
	}
	if !proves(t, api, "gone") || proves(t, api, "v") {
		t.Errorf("gone unstaged = %t, v unstaged = %t, want true and false", proves(t, api, "gone"), proves(t, api, "v"))
	}
}
