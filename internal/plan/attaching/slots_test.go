package attaching_test

import (
	"testing"

	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/attaching"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func of(volume, node string, role apiv1.Role, state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
	a := objects.NewAttachment(node, role, 0, state)
	a.Name, a.Spec.VolumeName = volume+"-"+node, volume
	return a
}

func TestSlots(t *testing.T) {
	t.Parallel()
	attached := apiv1.AttachmentAttached
	me := of("vol", "n", apiv1.RolePrimary, apiv1.AttachmentPending)
	replica := of("vol", "n", apiv1.RoleReplica, apiv1.AttachmentPending)
	foundNone := of("a", "n", apiv1.RolePrimary, apiv1.AttachmentFailed)
	foundNone.Status.Error = &apiv1.Error{Reason: string(provisioner.InsufficientCapacity)}
	full := []*apiv1.AzVolumeAttachment{of("x", "n", apiv1.RolePrimary, attached), of("y", "n", apiv1.RoleReplica, attached),
		of("z", "n", apiv1.RoleReplica, attached)}
	for name, test := range map[string]struct {
		in   attaching.SlotInput
		want attaching.SlotDecision
	}{
		"there is room": {attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 4, OnNode: full},
			attaching.SlotDecision{}},
		"law 8: a primary takes the slot of a replica": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 3, OnNode: full},
			attaching.SlotDecision{GiveWay: "y-n"}},
		"of a volume without a primary, if there is one": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 3, OnNode: full,
				HasPrimary: func(v string) bool { return v == "y" }}, attaching.SlotDecision{GiveWay: "z-n"}},
		"it waits while one is on its way out": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 2,
				OnNode: []*apiv1.AzVolumeAttachment{full[1],
					objects.Deleted(of("w", "n", apiv1.RoleReplica, apiv1.AttachmentDetaching))}},
			attaching.SlotDecision{Wait: true}},
		"the first primary that waits has the replica that is being detached": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 2,
				OnNode: []*apiv1.AzVolumeAttachment{full[1],
					objects.Deleted(of("w", "n", apiv1.RoleReplica, apiv1.AttachmentDetaching)),
					of("z", "n", apiv1.RolePrimary, apiv1.AttachmentPending)}}, attaching.SlotDecision{Wait: true}},
		"one that found no slot stands before it": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 2,
				OnNode: []*apiv1.AzVolumeAttachment{full[1],
					objects.Deleted(of("w", "n", apiv1.RoleReplica, apiv1.AttachmentDetaching)), foundNone}},
			attaching.SlotDecision{GiveWay: "y-n"}},
		"a VM of an unknown size, for a primary": {attaching.SlotInput{Attachment: me, MaxShares: 2, OnNode: full},
			attaching.SlotDecision{}},
		"a VM of an unknown size, for a replica": {attaching.SlotInput{Attachment: replica, MaxShares: 2, OnNode: full},
			attaching.SlotDecision{}},
		"and the second takes a replica of its own": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 2,
				OnNode: []*apiv1.AzVolumeAttachment{full[1],
					objects.Deleted(of("w", "n", apiv1.RoleReplica, apiv1.AttachmentDetaching)),
					of("a", "n", apiv1.RolePrimary, apiv1.AttachmentPending)}}, attaching.SlotDecision{GiveWay: "y-n"}},
		"one that failed for another reason does not stand in the way": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 2,
				OnNode: []*apiv1.AzVolumeAttachment{full[1],
					objects.Deleted(of("w", "n", apiv1.RoleReplica, apiv1.AttachmentDetaching)),
					of("a", "n", apiv1.RolePrimary, apiv1.AttachmentFailed)}}, attaching.SlotDecision{Wait: true}},
		"primaries never give way": {attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 1, OnNode: full[:1]},
			attaching.SlotDecision{Full: true}},
		"a primary takes the share of a replica": {
			attaching.SlotInput{Attachment: me, MaxShares: 2,
				OfVolume: []*apiv1.AzVolumeAttachment{of("vol", "a", apiv1.RoleReplica, attached),
					of("vol", "b", apiv1.RoleReplica, attached)}}, attaching.SlotDecision{GiveWay: "vol-a"}},
		"law 8: a replica leaves the reserve": {
			attaching.SlotInput{Attachment: replica, MaxShares: 2, MaxDataDisks: 4, ReservedSlots: 1, OnNode: full},
			attaching.SlotDecision{Full: true}},
		"and takes what is beyond": {
			attaching.SlotInput{Attachment: replica, MaxShares: 2, MaxDataDisks: 5, ReservedSlots: 1, OnNode: full},
			attaching.SlotDecision{}},
		"Azure's answer counts more than the driver's count": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 64, OnNode: full, AzureFull: true},
			attaching.SlotDecision{GiveWay: "y-n"}},
		"one that is still being attached gives way last": {
			attaching.SlotInput{Attachment: me, MaxShares: 2, MaxDataDisks: 3,
				OnNode: []*apiv1.AzVolumeAttachment{full[0], of("y", "n", apiv1.RoleReplica, apiv1.AttachmentAttaching),
					full[2]}}, attaching.SlotDecision{GiveWay: "z-n"}},
		"law 8: a replica leaves room for a primary that waits for it": {
			attaching.SlotInput{Attachment: replica, MaxShares: 2, MaxDataDisks: 4,
				OnNode: append(full[:3:3], of("q", "n", apiv1.RolePrimary, apiv1.AttachmentPending))},
			attaching.SlotDecision{Full: true}},
		"a replica finds no share": {
			attaching.SlotInput{Attachment: replica, MaxShares: 2,
				OfVolume: []*apiv1.AzVolumeAttachment{of("vol", "a", apiv1.RolePrimary, attached),
					of("vol", "b", apiv1.RolePrimary, attached)}}, attaching.SlotDecision{Full: true}},
		"a primary finds no share": {
			attaching.SlotInput{Attachment: me, MaxShares: 1,
				OfVolume: []*apiv1.AzVolumeAttachment{of("vol", "a", apiv1.RolePrimary, attached)}},
			attaching.SlotDecision{Full: true}},
		"what is pending or failed takes no room": {
			attaching.SlotInput{Attachment: me, MaxShares: 1, MaxDataDisks: 1,
				OnNode: []*apiv1.AzVolumeAttachment{of("q", "n", apiv1.RolePrimary, apiv1.AttachmentFailed)}},
			attaching.SlotDecision{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := attaching.Slots(test.in)
			got.Message = ""
			if got != test.want {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestRoomIsNeverOverbookedAndNeverTakenFromAPrimary checks any node full of anything.
func TestRoomIsNeverOverbookedAndNeverTakenFromAPrimary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		roles, states := []apiv1.Role{apiv1.RolePrimary, apiv1.RoleReplica}, []apiv1.AttachmentState{
			"", apiv1.AttachmentPending, apiv1.AttachmentAttaching, apiv1.AttachmentAttached, apiv1.AttachmentFailed,
			apiv1.AttachmentDetaching,
		}
		var onNode []*apiv1.AzVolumeAttachment
		byName := map[string]*apiv1.AzVolumeAttachment{}
		for i := range rapid.IntRange(0, 8).Draw(t, "attachments") {
			a := of(string(rune('a'+i)), "n", rapid.SampledFrom(roles).Draw(t, "role"),
				rapid.SampledFrom(states).Draw(t, "state"))
			if rapid.Bool().Draw(t, "deleted") {
				objects.Deleted(a)
			}
			onNode, byName[a.Name] = append(onNode, a), a
		}
		in := attaching.SlotInput{
			Attachment:    of("vol", "n", rapid.SampledFrom(roles).Draw(t, "my role"), apiv1.AttachmentPending),
			MaxShares:     3,
			MaxDataDisks:  int32(rapid.IntRange(1, 8).Draw(t, "slots")),
			ReservedSlots: int32(rapid.IntRange(0, 2).Draw(t, "reserve")),
			OnNode:        onNode,
		}
		taken := int32(0)
		for _, a := range onNode {
			switch a.Status.State {
			case apiv1.AttachmentAttaching, apiv1.AttachmentAttached, apiv1.AttachmentDetaching:
				taken++
			default:
				if in.Attachment.Spec.Role == apiv1.RoleReplica && a.Spec.Role == apiv1.RolePrimary &&
					a.DeletionTimestamp == nil {
					taken++ // it is about to
				}
			}
		}
		room := attaching.Slots(in)
		limit := in.MaxDataDisks
		if in.Attachment.Spec.Role == apiv1.RoleReplica {
			limit -= in.ReservedSlots
		}
		if room == (attaching.SlotDecision{}) != (taken < limit) {
			t.Fatalf("%d of %d taken: %+v", taken, limit, room)
		}
		if room.GiveWay != "" {
			if victim := byName[room.GiveWay]; victim.Spec.Role != apiv1.RoleReplica || victim.DeletionTimestamp != nil ||
				in.Attachment.Spec.Role != apiv1.RolePrimary {
				t.Fatalf("%+v gives way to %s", victim, in.Attachment.Spec.Role)
			}
		}
	})
}

// TestNewcomersOnAFullNodeTakeOneReplicaEach plays every order in which the waiting primaries may
// look, again and again until nothing changes.
func TestNewcomersOnAFullNodeTakeOneReplicaEach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots, newcomers := rapid.IntRange(1, 8).Draw(t, "slots"), rapid.IntRange(1, 6).Draw(t, "newcomers")
		var onNode []*apiv1.AzVolumeAttachment
		for i := range slots {
			onNode = append(onNode, of("r"+string(rune('a'+i)), "n", apiv1.RoleReplica, apiv1.AttachmentAttached))
		}
		for i := range newcomers {
			onNode = append(onNode, of("p"+string(rune('a'+i)), "n", apiv1.RolePrimary, apiv1.AttachmentPending))
		}
		for range newcomers * newcomers {
			me := onNode[slots+rapid.IntRange(0, newcomers-1).Draw(t, "who looks")]
			room := attaching.Slots(attaching.SlotInput{
				Attachment:   me,
				MaxShares:    2,
				MaxDataDisks: int32(slots),
				OnNode:       onNode,
			})
			for _, a := range onNode {
				if a.Name == room.GiveWay {
					objects.Deleted(a)
				}
			}
		}
		for _, me := range onNode[slots:] {
			if room := attaching.Slots(attaching.SlotInput{
				Attachment:   me,
				MaxShares:    2,
				MaxDataDisks: int32(slots),
				OnNode:       onNode,
			}); room.GiveWay != "" {
				objects.Deleted(onNode[int(room.GiveWay[1]-'a')])
			}
		}
		leaving := 0
		for _, a := range onNode[:slots] {
			if a.DeletionTimestamp != nil {
				leaving++
			}
		}
		if want := min(slots, newcomers); leaving != want {
			t.Fatalf("%d replicas give way to %d newcomers on %d slots, want %d", leaving, newcomers, slots, want)
		}
	})
}

func TestTheUseOfASlot(t *testing.T) {
	t.Parallel()
	primary := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return of("v", "n", apiv1.RolePrimary, state)
	}
	replica := func(state apiv1.AttachmentState) *apiv1.AzVolumeAttachment {
		return of("v", "n", apiv1.RoleReplica, state)
	}
	for name, c := range map[string]struct {
		attachment *apiv1.AzVolumeAttachment
		keeps      bool
		free       int32
	}{
		"a primary keeps it":                                   {primary(apiv1.AttachmentAttached), true, 2},
		"a primary that is being attached":                     {primary(apiv1.AttachmentAttaching), true, 2},
		"a primary that waits":                                 {primary(apiv1.AttachmentPending), true, 2},
		"a primary without a state yet":                        {primary(""), true, 2},
		"a primary that Azure refused is attached again":       {primary(apiv1.AttachmentFailed), true, 2},
		"a primary in a state that this program does not know": {primary("SomethingNew"), true, 2},
		"a primary that is being detached makes room":          {primary(apiv1.AttachmentDetaching), false, 2},
		"a primary that is to be deleted makes room":           {objects.Deleted(primary(apiv1.AttachmentAttached)), false, 2},
		"a primary that was deleted before its attach":         {objects.Deleted(primary(apiv1.AttachmentPending)), false, 3},
		"a primary that Azure failed to detach keeps it":       {objects.Deleted(primary(apiv1.AttachmentDetachFail)), true, 2},
		"a replica gives way":                                  {replica(apiv1.AttachmentAttached), false, 2},
		"a replica that is being attached gives way":           {replica(apiv1.AttachmentAttaching), false, 2},
		"a replica that waits leaves others no slot":           {replica(apiv1.AttachmentPending), false, 2},
		"a replica that Azure refused has none":                {replica(apiv1.AttachmentFailed), false, 3},
		"a replica that Azure failed to detach keeps it":       {objects.Deleted(replica(apiv1.AttachmentDetachFail)), true, 2},
	} {
		if got := attaching.KeepsSlot(c.attachment); got != c.keeps {
			t.Errorf("%s: keeps its slot: got %t, want %t", name, got, c.keeps)
		}
		capacity := &apiv1.NodeCapacity{MaxDataDisks: 4, ForeignDisks: 1}
		if got := attaching.FreeSlots(capacity, []*apiv1.AzVolumeAttachment{c.attachment}); got != c.free {
			t.Errorf("%s: got %d free slots, want %d", name, got, c.free)
		}
	}
}

func TestTheLimitOfSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capacity *apiv1.NodeCapacity
		want     int32
	}{
		"not known yet":                   {nil, -1},
		"a size that Azure does not list": {&apiv1.NodeCapacity{ForeignDisks: 1}, -1},
		"less the disks of others":        {&apiv1.NodeCapacity{MaxDataDisks: 4, ForeignDisks: 1}, 3},
		"a VM that others have filled":    {&apiv1.NodeCapacity{MaxDataDisks: 4, ForeignDisks: 5}, 0},
	} {
		if got, free := attaching.SlotLimit(c.capacity), attaching.FreeSlots(c.capacity, nil); got != c.want || free != c.want {
			t.Errorf("%s: got %d, and %d are free; want %d", name, got, free, c.want)
		}
	}
}
