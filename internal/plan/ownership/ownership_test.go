package ownership_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestAcquire(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		current *apiv1.Ownership
		want    apiv1.Ownership
		changed bool
		refused bool
	}{
		"the first ownership has epoch 1": {nil, apiv1.Ownership{NodeName: "b", Epoch: 1, State: apiv1.OwnershipHeld}, true,
			false},
		"a released volume is acquired with the next epoch": {&apiv1.Ownership{Epoch: 4, State: apiv1.OwnershipReleased},
			apiv1.Ownership{NodeName: "b", Epoch: 5, State: apiv1.OwnershipHeld}, true, false},
		"a released volume is acquired, whatever began the release": {
			&apiv1.Ownership{Epoch: 4, State: apiv1.OwnershipReleased, Cause: apiv1.CauseNodeLost},
			apiv1.Ownership{NodeName: "b", Epoch: 5, State: apiv1.OwnershipHeld}, true, false},
		"the holder's ownership stays as it is": {&apiv1.Ownership{NodeName: "b", Epoch: 4, State: apiv1.OwnershipHeld},
			apiv1.Ownership{NodeName: "b", Epoch: 4, State: apiv1.OwnershipHeld}, false, false},
		"a node may acquire the volume that it is releasing": {
			&apiv1.Ownership{NodeName: "b", Epoch: 4, State: apiv1.OwnershipReleasing},
			apiv1.Ownership{NodeName: "b", Epoch: 5, State: apiv1.OwnershipHeld}, true, false},
		"law 1: a second primary is refused": {&apiv1.Ownership{NodeName: "a", Epoch: 4, State: apiv1.OwnershipHeld},
			apiv1.Ownership{}, false, true},
		"law 3: a second primary is refused while the proof is awaited": {
			&apiv1.Ownership{NodeName: "a", Epoch: 4, State: apiv1.OwnershipReleasing}, apiv1.Ownership{}, false, true},
		"a node that is being fenced cannot acquire the volume": {
			&apiv1.Ownership{NodeName: "b", Epoch: 4, State: apiv1.OwnershipReleasing, Cause: apiv1.CauseNodeLost},
			apiv1.Ownership{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, changed, err := ownership.Acquire(test.current, "b", 0, objects.Now)
			if test.refused {
				if !errors.Is(err, provisioner.FailedPrecondition) {
					t.Fatalf("error %v", err)
				}
				return
			}
			got.LastTransitionTime = nil
			if err != nil || changed != test.changed || got != test.want {
				t.Fatalf("%+v, changed %t, error %v", got, changed, err)
			}
		})
	}
}

func TestReleasing(t *testing.T) {
	t.Parallel()
	ownershipIn := func(state apiv1.OwnershipState, cause apiv1.ReleaseCause) *apiv1.Ownership {
		return &apiv1.Ownership{NodeName: "a", Epoch: 4, State: state, Cause: cause}
	}
	for name, test := range map[string]struct {
		current         *apiv1.Ownership
		cause           apiv1.ReleaseCause
		want            apiv1.ReleaseCause
		holder, changed bool
	}{
		"the release of a held volume starts": {ownershipIn(apiv1.OwnershipHeld, ""), apiv1.CauseUnpublished,
			apiv1.CauseUnpublished, true, true},
		"the loss of the node becomes the cause of a release": {ownershipIn(apiv1.OwnershipReleasing,
			apiv1.CauseUnpublished), apiv1.CauseNodeLost, apiv1.CauseNodeLost, true, true},
		"the decision to fence stays when Kubernetes asks as well": {ownershipIn(apiv1.OwnershipReleasing, apiv1.CauseNodeLost),
			apiv1.CauseUnpublished, apiv1.CauseNodeLost, true, false},
		"a release that has started is not written again": {ownershipIn(apiv1.OwnershipReleasing,
			apiv1.CauseUnpublished), apiv1.CauseUnpublished, apiv1.CauseUnpublished, true, false},
		"a decision to fence is not written again": {ownershipIn(apiv1.OwnershipReleasing, apiv1.CauseNodeLost),
			apiv1.CauseNodeLost, apiv1.CauseNodeLost, true, false},
		"a released volume has no holder": {ownershipIn(apiv1.OwnershipReleased, ""), apiv1.CauseNodeLost, "", false, false},
		"another node holds the volume": {&apiv1.Ownership{NodeName: "b", Epoch: 4, State: apiv1.OwnershipHeld},
			apiv1.CauseNodeLost, "", false, false},
		"the volume was never owned": {nil, apiv1.CauseNodeLost, "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, holder, changed := ownership.StartRelease(test.current, "a", test.cause, objects.Now)
			if got.Cause != test.want || holder != test.holder || changed != test.changed {
				t.Fatalf("%+v, holder %t, changed %t", got, holder, changed)
			}
			if holder && (got.State != apiv1.OwnershipReleasing || got.Epoch != 4 || got.NodeName != "a") {
				t.Fatalf("%+v", got)
			}
		})
	}
}

func TestADiskThatMayHaveBeenDetachedIsNoReplica(t *testing.T) {
	t.Parallel()
	volume := &apiv1.AzVolume{Spec: apiv1.AzVolumeSpec{MaxMountReplicaCount: 1, Access: apiv1.AccessSingleNode}}
	a := &apiv1.AzVolumeAttachment{Spec: apiv1.AzVolumeAttachmentSpec{NodeName: "a", Epoch: 4}}
	a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 4}
	volume.Status.LastRelease = &apiv1.ReleaseRecord{NodeName: "a", Cause: apiv1.CauseUnpublished, Proof: *a.Status.Proof}
	if got := ownership.Demotion(volume, a, nil); got != ownership.Demote {
		t.Errorf("after an ordinary release: %s", got)
	}
	detaching := a.DeepCopy()
	detaching.Status.State = apiv1.AttachmentDetaching
	if got := ownership.Demotion(volume, detaching, nil); got != ownership.Remove {
		t.Errorf("while a fence detaches the disk: %s", got)
	}
	volume.Status.LastRelease.Cause = apiv1.CauseNodeLost
	if got := ownership.Demotion(volume, a, nil); got != ownership.Remove {
		t.Errorf("after a release in the course of fencing: %s", got)
	}
	for name, change := range map[string]func(r *apiv1.ReleaseRecord){
		"the fence was of another node":    func(r *apiv1.ReleaseRecord) { r.NodeName = "b" },
		"the fence was of an earlier time": func(r *apiv1.ReleaseRecord) { r.Proof.Epoch = 3 },
	} {
		fenced := volume.DeepCopy()
		change(fenced.Status.LastRelease)
		if got := ownership.Demotion(fenced, a, nil); got != ownership.Demote {
			t.Errorf("%s: got %s, want %s", name, got, ownership.Demote)
		}
	}
}

func TestAReleasedAttachmentIsAReplicaOnlyWhereOneIsWanted(t *testing.T) {
	t.Parallel()
	released := func() (*apiv1.AzVolume, *apiv1.AzVolumeAttachment) {
		a := objects.NewAttachment("a", apiv1.RolePrimary, 4, apiv1.AttachmentAttached)
		return objects.NewVolume(objects.Owned("", 4, apiv1.OwnershipReleased)), objects.Proved(a, apiv1.ProofUnstaged)
	}
	volume, a := released()
	all := objects.Attachments(a, objects.NewAttachment("b", apiv1.RoleReplica, 0, apiv1.AttachmentAttached),
		objects.Deleted(objects.NewAttachment("c", apiv1.RoleReplica, 0, apiv1.AttachmentDetaching)))
	if got := ownership.Demotion(volume, a, all); got != ownership.Demote {
		t.Errorf("got %s beside one replica, and one that is being deleted; want %s", got, ownership.Demote)
	}
	for name, change := range map[string]func(*apiv1.AzVolume, *apiv1.AzVolumeAttachment){
		"no replicas are wanted": func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { v.Spec.MaxMountReplicaCount = 0 },
		"the disk is being deleted": func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) {
			v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(0), apiv1.DeletionDelete
		},
		"the attachment is being deleted": func(_ *apiv1.AzVolume, a *apiv1.AzVolumeAttachment) { objects.Deleted(a) },
		"several nodes use the volume":    func(v *apiv1.AzVolume, _ *apiv1.AzVolumeAttachment) { multiNode(v) },
	} {
		volume, a := released()
		change(volume, a)
		if got := ownership.Demotion(volume, a, objects.Attachments(a)); got != ownership.Remove {
			t.Errorf("%s: got %s, want %s", name, got, ownership.Remove)
		}
	}
}

func multiNode(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }

func TestWhoOwnsAVolume(t *testing.T) {
	t.Parallel()
	const held, releasing, released = apiv1.OwnershipHeld, apiv1.OwnershipReleasing, apiv1.OwnershipReleased
	lost := func(v *apiv1.AzVolume) { v.Status.Primary.Cause = apiv1.CauseNodeLost }
	named := func(v *apiv1.AzVolume) { v.Status.Primary.NodeName = "a" }
	attachment := func(role apiv1.Role) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment("a", role, 1, apiv1.AttachmentAttached)
	}
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		a      *apiv1.AzVolumeAttachment
		// owned and fenced are about node a.
		owned, fenced, primary bool
	}{
		"never owned":                  {objects.NewVolume(), nil, false, false, false},
		"held":                         {objects.NewVolume(objects.Owned("a", 3, held)), nil, true, false, true},
		"held by another node":         {objects.NewVolume(objects.Owned("b", 3, held)), nil, false, false, true},
		"being released":               {objects.NewVolume(objects.Owned("a", 3, releasing)), nil, true, false, true},
		"being released by a fence":    {objects.NewVolume(objects.Owned("a", 3, releasing), lost), nil, true, true, true},
		"held again after a fence":     {objects.NewVolume(objects.Owned("a", 3, held), lost), nil, true, false, true},
		"released":                     {objects.NewVolume(objects.Owned("", 3, released)), nil, false, false, false},
		"released, and names its node": {objects.NewVolume(objects.Owned("", 3, released), named), nil, false, false, false},
		"several nodes, one uses it":   {objects.NewVolume(multiNode), attachment(apiv1.RolePrimary), false, false, true},
		"several nodes, a replica":     {objects.NewVolume(multiNode), attachment(apiv1.RoleReplica), false, false, false},
		"several nodes, being unpublished": {objects.NewVolume(multiNode),
			objects.Deleted(attachment(apiv1.RolePrimary)), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []*apiv1.AzVolumeAttachment
			if test.a != nil {
				all = append(all, test.a)
			}
			if got := ownership.OwnedBy(test.volume, "a"); got != test.owned {
				t.Errorf("OwnedBy: got %t, want %t", got, test.owned)
			}
			if got := ownership.FenceDecided(test.volume, "a"); got != test.fenced {
				t.Errorf("FenceDecided: got %t, want %t", got, test.fenced)
			}
			if got := ownership.HasPrimary(test.volume, all); got != test.primary {
				t.Errorf("HasPrimary: got %t, want %t", got, test.primary)
			}
		})
	}
}

func TestWhichAttachmentTakesTheProofOfItsNodesRelease(t *testing.T) {
	t.Parallel()
	const primary, replica = apiv1.RolePrimary, apiv1.RoleReplica
	attachment := func(role apiv1.Role, epoch int64) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment("a", role, epoch, apiv1.AttachmentAttached)
	}
	for name, test := range map[string]struct {
		a    *apiv1.AzVolumeAttachment
		want bool
	}{
		"no attachment":                   {nil, false},
		"the primary of the epoch":        {attachment(primary, 4), true},
		"a replica of the epoch":          {attachment(replica, 4), false},
		"the primary of an earlier epoch": {attachment(primary, 3), false},
		"a replica of a later epoch":      {attachment(replica, 5), true},
		"a replica that is being deleted": {objects.Deleted(attachment(replica, 0)), true},
	} {
		owner := &apiv1.Ownership{NodeName: "a", Epoch: 4, State: apiv1.OwnershipReleasing}
		if got := ownership.Intact(owner, test.a); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

func TestAbsenceFromAReportIsProofOnlyAfterAScan(t *testing.T) {
	t.Parallel()
	scanned := metav1.NewMicroTime(objects.Now)
	for name, test := range map[string]struct {
		report *apiv1.AzDriverNode
		proof  bool
	}{
		"no report":                   {nil, false},
		"a report without a scan":     {&apiv1.AzDriverNode{}, false},
		"absent after a scan":         {&apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{MountsScannedTime: &scanned}}, true},
		"present after a scan":        {objects.Staged(&scanned, "vol"), false},
		"present without a scan":      {objects.Staged(nil, "vol"), false},
		"another volume after a scan": {objects.Staged(&scanned, "other"), true},

		"absent from the report as the node wrote it": {written("other"), true},
		"absent after an entry was removed": {
			edited("vol", func(d *apiv1.AzDriverNode) { d.Status.StagedVolumes = nil }), false},
		"absent after an entry was renamed": {edited("vol",
			func(d *apiv1.AzDriverNode) { d.Status.StagedVolumes[0].VolumeName = "x" }), false},
		"absent from a status of another object": {edited("other", func(d *apiv1.AzDriverNode) { d.UID = "2" }), false},
		"absent after the scan was removed": {edited("other",
			func(d *apiv1.AzDriverNode) { d.Status.MountsScannedTime = nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proof, why := ownership.UnstagedProof(test.report, "vol", 7, objects.Now)
			if (proof != nil) != test.proof || (proof == nil) == (why == "") {
				t.Fatalf("proof %+v, why %q", proof, why)
			}
			if proof != nil && (proof.Epoch != 7 || proof.Type != apiv1.ProofUnstaged) {
				t.Fatalf("proof %+v", proof)
			}
		})
	}
}

func TestAReportBeforeAScanSaysSo(t *testing.T) {
	t.Parallel()
	unscanned := &apiv1.AzDriverNode{}
	if ownership.ReportProvesAbsence(unscanned) {
		t.Error("got that a report before a scan proves that volumes are absent, want not")
	}
	if _, why := ownership.UnstagedProof(unscanned, "vol", 7, objects.Now); !strings.Contains(why, "not yet compared") {
		t.Errorf("got %q, want that the plug-in has not yet compared its report with the mounts", why)
	}
}

// written is a report as a node writes it.
func written(volumes ...string) *apiv1.AzDriverNode {
	scanned := metav1.NewMicroTime(objects.Now)
	d := &apiv1.AzDriverNode{
		ObjectMeta: metav1.ObjectMeta{UID: "1"},
		Status:     apiv1.AzDriverNodeStatus{MountsScannedTime: &scanned},
	}
	for _, volume := range volumes {
		d.Status.StagedVolumes = append(d.Status.StagedVolumes, apiv1.StagedVolume{
			VolumeName: volume,
			Epoch:      1,
			Phase:      apiv1.PhaseStaged,
		})
	}
	d.Status.ReportDigest = ownership.ReportDigest(d)
	return d
}

// edited is a report that another writer changed after the node wrote it.
func edited(volume string, edit func(*apiv1.AzDriverNode)) *apiv1.AzDriverNode {
	d := written(volume)
	edit(d)
	return d
}

func TestTheDigestIsOfTheVolumesAndNotOfTheirOrder(t *testing.T) {
	t.Parallel()
	if a, b := written("a", "b").Status.ReportDigest, written("b", "a").Status.ReportDigest; a != b {
		t.Errorf("digests of the same volumes differ: %s and %s", a, b)
	}
	if a, b := written("a", "b").Status.ReportDigest, written("a").Status.ReportDigest; a == b {
		t.Errorf("digests of different volumes are the same: %s", a)
	}
}

// TestOneWriter visits every state that acquiring, releasing, staging and killing of any party can
// lead to, in any order, up to the fourth epoch, and checks that two nodes never use the volume
// (laws 1 to 3). Each step is one access to the API server, as in the protocol, or a kill. It finds
// a party that reads before it writes.
func TestOneWriter(t *testing.T) {
	t.Parallel()
	seen, fault := explore(protocol{})
	if fault != "" {
		t.Fatal(fault)
	}
	used := 0
	for state := range seen {
		if state.nodes[1].using && state.primary.Epoch == 4 {
			used++
		}
	}
	if used == 0 {
		t.Fatal("got no completed hand-over, want at least one to check")
	}
	t.Logf("%d states", len(seen))
	for _, early := range []mutant{ownershipReadFirst, reportReadFirst} {
		if _, fault := explore(protocol{mutant: early}); fault == "" {
			t.Errorf("%s: no two nodes use the volume; want that to be found", early)
		}
	}
}

// explore visits the states that steps from a first one lead to, and says in which two nodes use
// the volume.
func explore(first protocol) (seen map[protocol]bool, fault string) {
	seen = map[protocol]bool{first: true}
	for queue := []protocol{first}; len(queue) > 0; queue = queue[1:] {
		for name, next := range queue[0].steps() {
			if next.nodes[0].using && next.nodes[1].using {
				return seen, fmt.Sprintf("after %q both nodes use the volume: %+v, before %+v", name, next, queue[0])
			}
			if !seen[next] && next.primary.Epoch <= 4 {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return seen, ""
}

// mutant is a protocol in which a party reads before it writes.
type mutant string

const (
	ownershipReadFirst mutant = "a node reads the ownership before it announces the volume"
	reportReadFirst    mutant = "the controller reads the report before it starts the release"
)

// protocol is a state of the model: what the API server has, what the parties remember, and what is
// true.
type protocol struct {
	mutant  mutant
	owned   bool
	primary apiv1.Ownership
	// proof is the epoch of the proof in the controller's memory; 0 for none.
	proof int64
	nodes [2]nodeState
}

type nodeState struct {
	reported      int64 // API: the epoch in the report; 0 for no entry
	scanned       bool  // API
	announced     int64 // memory: the epoch that the running call announced
	maySee, using bool  // memory: the ownership was seen; truth: the volume is mounted
}

var names = [2]string{"a", "b"}

// steps returns every state that one step leads to.
func (p protocol) steps() map[string]protocol {
	next := map[string]protocol{}
	if p.owned {
		if c, holder, changed := ownership.StartRelease(&p.primary, p.primary.NodeName, apiv1.CauseUnpublished,
			objects.Now); holder && changed {
			next["start release"] = p.with(func(q *protocol) { q.primary = stripped(c) })
		}
		releasing := p.primary.State == apiv1.OwnershipReleasing
		if releasing || p.mutant == reportReadFirst {
			if proof, _ := ownership.UnstagedProof(p.report(), "vol", p.primary.Epoch, objects.Now); proof != nil {
				next["read report"] = p.with(func(q *protocol) { q.proof = proof.Epoch })
			}
			if releasing && p.proof == p.primary.Epoch {
				next["write released"] = p.with(
					func(q *protocol) { q.primary, q.proof = stripped(ownership.CompleteRelease(p.primary, objects.Now)), 0 })
			}
		}
	}
	next["controller dies"] = p.with(func(q *protocol) { q.proof = 0 })
	for i := range names {
		p.nodeSteps(i, next)
	}
	return next
}

func (p protocol) nodeSteps(i int, next map[string]protocol) {
	name, n := names[i], p.nodes[i]
	var current *apiv1.Ownership
	if p.owned {
		current = &p.primary
	}
	if c, changed, err := ownership.Acquire(current, name, 0, objects.Now); err == nil && changed {
		next["acquire "+name] = p.with(func(q *protocol) { q.owned, q.primary = true, stripped(c) })
	}
	// A plug-in that starts finds its mounts, and reports them, before it says that it has scanned.
	next["node dies "+name] = p.with(
		func(q *protocol) { q.nodes[i].announced, q.nodes[i].maySee, q.nodes[i].scanned = 0, false, false },
	)
	next["node dies and its object is lost "+name] = p.with(func(q *protocol) { q.nodes[i] = nodeState{using: n.using} })
	if !n.scanned {
		next["node scans "+name] = p.with(func(q *protocol) {
			q.nodes[i].scanned, q.nodes[i].reported = true, 0
			if n.using {
				q.nodes[i].reported = max(n.reported, 1)
			}
		})
		return
	}
	if p.owned && !n.using {
		next["node announces "+name] = p.with(func(q *protocol) {
			q.nodes[i].reported, q.nodes[i].announced = p.primary.Epoch, p.primary.Epoch
			q.nodes[i].maySee = n.maySee && p.mutant == ownershipReadFirst
		})
	}
	if (n.announced > 0) != (p.mutant == ownershipReadFirst) && !n.maySee && !n.using {
		next["node reads the ownership "+name] = p.with(func(q *protocol) {
			if p.primary.State == apiv1.OwnershipHeld && p.primary.NodeName == name &&
				(p.primary.Epoch == n.announced || n.announced == 0) {
				q.nodes[i].maySee = true
				return
			}
			q.nodes[i].reported, q.nodes[i].announced = 0, 0
		})
	}
	if n.maySee && n.announced > 0 && !n.using {
		next["node mounts "+name] = p.with(
			func(q *protocol) { q.nodes[i].using, q.nodes[i].maySee, q.nodes[i].announced = true, false, 0 })
	}
	if n.using {
		next["node unmounts "+name] = p.with(func(q *protocol) { q.nodes[i].using = false })
	}
	if !n.using && n.reported > 0 && n.announced == 0 {
		next["node removes its entry "+name] = p.with(func(q *protocol) { q.nodes[i].reported = 0 })
	}
}

func (p protocol) with(change func(*protocol)) protocol {
	change(&p)
	return p
}

// report is the report of the node that holds the ownership.
func (p protocol) report() *apiv1.AzDriverNode {
	n := p.nodes[0]
	if p.primary.NodeName == names[1] {
		n = p.nodes[1]
	}
	d := &apiv1.AzDriverNode{}
	if n.scanned {
		scan := metav1.NewMicroTime(objects.Now)
		d.Status.MountsScannedTime = &scan
	}
	if n.reported > 0 {
		d.Status.StagedVolumes = []apiv1.StagedVolume{{VolumeName: "vol", Epoch: n.reported}}
	}
	return d
}

func stripped(c apiv1.Ownership) apiv1.Ownership {
	c.LastTransitionTime = nil // the time would make equal states differ
	return c
}

func TestAReleasedEpochIsProvenForTheNodeThatAcquiresAgain(t *testing.T) {
	t.Parallel()
	v := objects.NewVolume(objects.Owned("a", 3, apiv1.OwnershipHeld))
	// made after the proof, which it does not carry
	late := objects.Deleted(objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached))
	if ownership.ProvedReleased(v, late) {
		t.Error("law 3: an ownership that was acquired again counts as a release")
	}
	v.Status.LastRelease = &apiv1.ReleaseRecord{NodeName: "a", Proof: apiv1.ReleaseProof{Type: apiv1.ProofUnstaged, Epoch: 2}}
	if !ownership.ProvedReleased(v, late) {
		t.Error("the attachment of a released epoch remains, and the publish of the next epoch waits forever")
	}
	if ownership.ProvedReleased(v, objects.NewAttachment("a", apiv1.RolePrimary, 3, apiv1.AttachmentAttached)) {
		t.Error("law 3: the release of an epoch counts for the next epoch")
	}
}

func TestNeverPublished(t *testing.T) {
	t.Parallel()
	adopted := func(v *apiv1.AzVolume) { v.Spec.Origin = apiv1.OriginAdopted }
	for name, test := range map[string]struct {
		volume *apiv1.AzVolume
		want   bool
	}{
		"a volume without an AzVolume":                {nil, true},
		"a volume that only an expansion has adopted": {objects.NewVolume(adopted), true},
		"a multi-node volume that was adopted":        {objects.NewVolume(adopted, multiNode), true},
		"a multi-node volume that was adopted, whatever ownership it has": {objects.NewVolume(adopted, multiNode,
			objects.Owned("m", 1, apiv1.OwnershipHeld)), true},
		"a volume that was adopted and published": {objects.NewVolume(adopted,
			objects.Owned("m", 1, apiv1.OwnershipHeld)), false},
		"a volume that was adopted, published and released": {objects.NewVolume(adopted,
			objects.Owned("", 1, apiv1.OwnershipReleased)), false},
		"a volume that this driver created and never published": {objects.NewVolume(), false},
		"a multi-node volume that this driver created":          {objects.NewVolume(multiNode), false},
		"a volume that this driver created and another node holds": {objects.NewVolume(
			objects.Owned("m", 1, apiv1.OwnershipHeld)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ownership.Unrecorded(test.volume); got != test.want {
				t.Error(got)
			}
		})
	}
}
