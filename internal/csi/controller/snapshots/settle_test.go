package snapshots_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// csi-snapshotter does not ask for the deletion of a group whose creation ended with a final code.
// Its members are cut before its seal.
func TestGroupSnapshotHasNoFinalCodeWhileAMemberExists(t *testing.T) {
	p := controlplane.WithPendingCopies(t)
	p.AddNode("group-a", "1", "Standard_D4s_v5")
	a, b := p.Create("a", nil), p.Create("b", nil)
	sum := sha256.Sum256([]byte(strings.ToLower(b)))
	second := controlplane.SnapshotID("group-" + hex.EncodeToString(sum[:])[:8])
	denied := provisioner.Errorf(provisioner.Unauthorized, "no")
	for name, faults := range map[string][]fake.Fault{
		"the seal is refused": {{
			Method: fake.SnapshotsCreate,
			ID:     controlplane.SnapshotID("group"),
			Err:    denied,
		}},
		"a member is refused, and the first one stays too": {{
			Method: fake.SnapshotsCreate,
			ID:     second,
			Err:    denied,
		}, {Method: fake.SnapshotsDelete, Err: denied}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range faults {
				defer p.Cloud.Inject(f)()
			}
			_, err := takeGroup(p, t, "group", a, b)
			expectCode(t, err, codes.Unavailable, "exists")
			if names(p) == "" {
				t.Error("no snapshot is left, want a member")
			}
		})
	}
	stop := p.Cloud.Inject(fake.Fault{
		Method: fake.SnapshotsCreate,
		ID:     second,
		Err:    denied,
	})
	_, err := takeGroup(p, t, "group", a, b)
	expectCode(t, err, codes.PermissionDenied)
	if left := names(p); left != "" {
		t.Errorf("after a final code snapshots %q are left, want none", left)
	}
	stop()
	_, err = takeGroup(p, t, "group", a, b)
	must(t, err)
}
