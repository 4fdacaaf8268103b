package nodehealth_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

func TestLastWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		word  nodehealth.LastWord
		state nodehealth.State
		want  bool
	}{
		"Azure says that the VM is down":                   {nodehealth.LastWord{}, nodehealth.Down, true},
		"a lost node":                                      {nodehealth.LastWord{}, nodehealth.Lost, false},
		"a lost node whose VM was off":                     {nodehealth.LastWord{Off: true}, nodehealth.Lost, true},
		"a suspect node whose VM was off":                  {nodehealth.LastWord{Off: true}, nodehealth.Suspect, true},
		"a lost node from which everything was taken":      {nodehealth.LastWord{FailedOver: true}, nodehealth.Lost, true},
		"a healthy node from which everything was taken":   {nodehealth.LastWord{FailedOver: true}, nodehealth.Healthy, false},
		"a node about which this process knows too little": {nodehealth.LastWord{}, nodehealth.Unknown, false},
	} {
		if got := c.word.Said(c.state); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

func TestFailedOver(t *testing.T) {
	tainted := func(keys ...string) *corev1.Node {
		n := &corev1.Node{}
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	primary := func() *apiv1.AzVolumeAttachment {
		return objects.NewAttachment("a", apiv1.RolePrimary, 2, apiv1.AttachmentAttached)
	}
	stale := objects.Proved(primary(), apiv1.ProofDetached)
	stale.Spec.Epoch++
	lost := tainted(apiv1.TaintNodeLost)
	for name, test := range map[string]struct {
		node        *corev1.Node
		attachments []*apiv1.AzVolumeAttachment
		want        bool
	}{
		"nothing is left on it": {lost, nil, true},
		"every volume has a proof": {lost,
			objects.Attachments(objects.Proved(primary(), apiv1.ProofDetached),
				objects.Proved(objects.Deleted(primary()), apiv1.ProofVMDown)), true},
		"replicas are not used": {lost,
			objects.Attachments(objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)), true},
		"one volume has no proof": {
			lost, objects.Attachments(objects.Proved(primary(), apiv1.ProofDetached), primary()), false},
		"one that is being deleted has none":                     {lost, objects.Attachments(objects.Deleted(primary())), false},
		"the proof is of an earlier epoch":                       {lost, objects.Attachments(stale), false},
		"no failover began, so that the guard has not judged it": {tainted(corev1.TaintNodeUnreachable), nil, false},
		"there is no Node":                                       {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodehealth.FailedOver(test.node, test.attachments); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
