package statemetrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/controller/statemetrics"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
)

const namespace = "disks"

func at(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }

func conditionSince(kind string, status metav1.ConditionStatus, second int64) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: at(second)}
}

// volume is one that was created at 1 s.
func volume(name string, state apiv1.VolumeState, conditions ...metav1.Condition) *apiv1.AzVolume {
	v := &apiv1.AzVolume{}
	v.Name, v.Namespace, v.CreationTimestamp = name, namespace, at(1)
	v.Status.State, v.Status.Conditions = state, conditions
	return v
}

func node(name string, conditions ...metav1.Condition) *apiv1.AzDriverNode {
	n := &apiv1.AzDriverNode{}
	n.Name, n.Namespace = name, namespace
	n.Status.Conditions = conditions
	return n
}

func TestVolumesAndNodesAreCountedByState(t *testing.T) {
	t.Parallel()
	ready, updated := apiv1.VolumeConditionReady, apiv1.VolumeConditionUpdated
	deleting := volume("deleting", apiv1.VolumeDeletionFailed, conditionSince(ready, metav1.ConditionFalse, 90))
	deleting.DeletionTimestamp, deleting.Finalizers = ptr.To(at(70)), []string{"test/keep"}
	elsewhere := volume("elsewhere", apiv1.VolumeCreated)
	elsewhere.Namespace = "other"
	objects := []client.Object{
		volume("new", ""), elsewhere, deleting,
		volume("created", apiv1.VolumeCreated, conditionSince(ready, metav1.ConditionTrue, 30)),
		volume("created-before", apiv1.VolumeCreated, conditionSince(ready, metav1.ConditionTrue, 20)),
		volume("changed", apiv1.VolumeUpdateFailed, conditionSince(ready, metav1.ConditionTrue, 20),
			conditionSince(updated, metav1.ConditionFalse, 50)),
		volume("frozen", apiv1.VolumeCreated, conditionSince(ready, metav1.ConditionTrue, 30), metav1.Condition{
			Type: apiv1.VolumeConditionUsable, Status: metav1.ConditionFalse, Reason: apiv1.ReasonFilesystemFrozen}),
		volume("usable", apiv1.VolumeCreated, conditionSince(ready, metav1.ConditionTrue, 30),
			conditionSince(apiv1.VolumeConditionUsable, metav1.ConditionTrue, 30)),
		volume("paused", apiv1.VolumeCreated, conditionSince(ready, metav1.ConditionTrue, 40),
			conditionSince(apiv1.VolumeConditionPaused, metav1.ConditionTrue, 80)),
		volume("paused-before", apiv1.VolumeCreated, conditionSince(ready, metav1.ConditionTrue, 40),
			conditionSince(apiv1.VolumeConditionPaused, metav1.ConditionTrue, 75)),
		volume("not-paused", apiv1.VolumeCreated, conditionSince(ready, metav1.ConditionTrue, 40),
			conditionSince(apiv1.VolumeConditionPaused, metav1.ConditionFalse, 10)),
		volume("of-a-later-version", "Archived", conditionSince(ready, metav1.ConditionTrue, 60)),
		node("a", conditionSince("Ready", metav1.ConditionTrue, 1), conditionSince("Reachable", metav1.ConditionFalse, 1)),
		node("b", conditionSince("Ready", metav1.ConditionTrue, 1),
			conditionSince(apiv1.NodeConditionFailoverEnabled, metav1.ConditionFalse, 65)),
	}
	now := time.Unix(1000, 0)
	api := fakeapi.With(objects...).Build()
	got := statemetrics.New(t.Context(), api, namespace, func() time.Time { return now })
	const want = `# HELP azuredisk_nodes AzDriverNodes by condition and its status.
# TYPE azuredisk_nodes gauge
azuredisk_nodes{condition="FailoverEnabled",status="False"} 1
azuredisk_nodes{condition="FailoverEnabled",status="True"} 0
azuredisk_nodes{condition="FailoverEnabled",status="Unknown"} 0
azuredisk_nodes{condition="Reachable",status="False"} 1
azuredisk_nodes{condition="Reachable",status="True"} 0
azuredisk_nodes{condition="Reachable",status="Unknown"} 0
azuredisk_nodes{condition="Ready",status="False"} 0
azuredisk_nodes{condition="Ready",status="True"} 2
azuredisk_nodes{condition="Ready",status="Unknown"} 0
# HELP azuredisk_paused_objects AzVolumes that are paused, and AzDriverNodes without failover, by type.
# TYPE azuredisk_paused_objects gauge
azuredisk_paused_objects{type="AzDriverNode"} 1
azuredisk_paused_objects{type="AzVolume"} 2
# HELP azuredisk_paused_oldest_timestamp_seconds Since when the object that has been paused for longest is.
# TYPE azuredisk_paused_oldest_timestamp_seconds gauge
azuredisk_paused_oldest_timestamp_seconds{type="AzDriverNode"} 65
azuredisk_paused_oldest_timestamp_seconds{type="AzVolume"} 75
# HELP azuredisk_volume_problems AzVolumes with a problem that a node reports, by its reason.
# TYPE azuredisk_volume_problems gauge
azuredisk_volume_problems{reason="DeviceGone"} 0
azuredisk_volume_problems{reason="DeviceHeld"} 0
azuredisk_volume_problems{reason="FilesystemDamaged"} 0
azuredisk_volume_problems{reason="FilesystemFrozen"} 1
azuredisk_volume_problems{reason="FilesystemTakesNoWrites"} 0
azuredisk_volume_problems{reason="MountBusy"} 0
azuredisk_volume_problems{reason="NodeDiskFull"} 0
azuredisk_volume_problems{reason="ReadFailed"} 0
azuredisk_volume_problems{reason="UnmountFailed"} 0
# HELP azuredisk_volume_state_oldest_timestamp_seconds When the volume that has been in the state for longest entered it.
# TYPE azuredisk_volume_state_oldest_timestamp_seconds gauge
azuredisk_volume_state_oldest_timestamp_seconds{state="Archived"} 60
azuredisk_volume_state_oldest_timestamp_seconds{state="Created"} 20
azuredisk_volume_state_oldest_timestamp_seconds{state="DeletionFailed"} 70
azuredisk_volume_state_oldest_timestamp_seconds{state="Pending"} 1
azuredisk_volume_state_oldest_timestamp_seconds{state="UpdateFailed"} 50
# HELP azuredisk_volumes AzVolumes by status.state.
# TYPE azuredisk_volumes gauge
azuredisk_volumes{state="Archived"} 1
azuredisk_volumes{state="Created"} 7
azuredisk_volumes{state="Creating"} 0
azuredisk_volumes{state="CreationFailed"} 0
azuredisk_volumes{state="Deleting"} 0
azuredisk_volumes{state="DeletionFailed"} 1
azuredisk_volumes{state="Pending"} 1
azuredisk_volumes{state="UpdateFailed"} 1
azuredisk_volumes{state="Updating"} 0
`
	if err := testutil.CollectAndCompare(got, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	expect.Must(t, api.DeleteAllOf(t.Context(), &apiv1.AzDriverNode{}, client.InNamespace(namespace)))
	if n := testutil.CollectAndCount(got, "azuredisk_nodes"); n != 9 {
		t.Errorf("within ten seconds: got %d series of nodes, want the 9 that were counted", n)
	}
	now = now.Add(10 * time.Second)
	if n := testutil.CollectAndCount(got, "azuredisk_nodes"); n != 0 {
		t.Errorf("after ten seconds: got %d series of nodes, want none", n)
	}
}
