package publishing_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/publishing"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// user is a pod on a node that uses the volume; the age orders pods.
func user(node string, age time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + node, CreationTimestamp: *objects.Ago(age)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func ending(p *corev1.Pod) { p.DeletionTimestamp = objects.Ago(0) }

func optedOut(p *corev1.Pod) {
	p.Annotations = map[string]string{apiv1.AnnotationFailover: apiv1.FailoverDisabled}
}

func TestAttachDetach(t *testing.T) {
	const primary, replica = apiv1.RolePrimary, apiv1.RoleReplica
	const held, releasing, released = apiv1.OwnershipHeld, apiv1.OwnershipReleasing, apiv1.OwnershipReleased
	lost := func(v *apiv1.AzVolume) { v.Status.Primary.Cause = apiv1.CauseNodeLost }
	multi := func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode }
	forOne := func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 1 }
	kept := func(v *apiv1.AzVolume) { v.DeletionTimestamp = objects.Ago(0) }
	going := func(v *apiv1.AzVolume) {
		v.DeletionTimestamp, v.Spec.DeletionPolicy = objects.Ago(0), apiv1.DeletionDelete
	}
	attached := func(node string, role apiv1.Role, epoch int64) *apiv1.AzVolumeAttachment {
		return objects.NewAttachment(node, role, epoch, apiv1.AttachmentAttached)
	}
	proven := func(a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
		a.Status.Proof = &apiv1.ReleaseProof{Type: apiv1.ProofDetached, Epoch: a.Spec.Epoch}
		return a
	}
	fenced := func(a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
		a.Finalizers = append(a.Finalizers, apiv1.FinalizerFenced)
		return a
	}
	ofVM := func(id string, a *apiv1.AzVolumeAttachment) *apiv1.AzVolumeAttachment {
		a.Status.VMID = id
		return a
	}
	type all = []*apiv1.AzVolumeAttachment
	type pods = []*corev1.Pod
	tests := map[string]struct {
		volume      *apiv1.AzVolume
		attachments all
		pods        pods
		reports     []*apiv1.AzDriverNode
		notReady    []string
		want        publishing.Step
	}{
		"no pod wants a volume that no node holds": {volume: objects.NewVolume()},
		"a volume that is not adopted yet is published to the first pod's node": {
			pods: pods{user("b", 0), user("a", time.Minute)}, want: publishing.Step{Publish: []string{"a"}}},
		"a volume is published to the node of its pod, before the kubelet asks": {
			volume: objects.NewVolume(), pods: pods{user("a", 0)}, want: publishing.Step{Publish: []string{"a"}}},
		"a pod that is not scheduled wants nothing":       {volume: objects.NewVolume(), pods: pods{user("", 0)}},
		"a pod that ends wants nothing new":               {volume: objects.NewVolume(), pods: pods{user("a", 0, ending)}},
		"a volume that is being deleted is not published": {volume: objects.NewVolume(going), pods: pods{user("a", 0)}},
		"a volume whose AzVolume a person deleted, and the driver keeps, is published": {
			volume: objects.NewVolume(kept), pods: pods{user("a", 0)}, want: publishing.Step{Publish: []string{"a"}}},
		"nothing is published to a node that Kubernetes has lost": {
			volume: objects.NewVolume(), pods: pods{user("a", time.Minute), user("b", 0)}, notReady: []string{"a"},
			want: publishing.Step{Publish: []string{"b"}}},
		"a volume that is where it is wanted stays": {volume: objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{attached("a", primary, 1), attached("b", replica, 0)}, pods: pods{user("a", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}},
		"a publish that was interrupted after it acquired ownership is repeated": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", replica, 0)},
			pods: pods{user("a", 0)}, want: publishing.Step{Publish: []string{"a"}}},
		"a publish that was interrupted before the primary had its epoch is repeated": {
			volume: objects.NewVolume(objects.Owned("a", 2, held)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("a", 0)}, want: publishing.Step{Publish: []string{"a"}}},
		"a volume is published to a pod that comes to its node during the release": {
			volume: objects.NewVolume(objects.Owned("a", 1, releasing)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("a", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")},
			want: publishing.Step{Publish: []string{"a"}}},
		"a publish that Azure refused is made again": {volume: objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{objects.NewAttachment("a", primary, 1, apiv1.AttachmentFailed)}, pods: pods{user("a", 0)},
			want: publishing.Step{Publish: []string{"a"}}},
		"a node that still has the volume mounted is waited for": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("b", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}},
		"a node that has not scanned its mounts is waited for": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("b", 0)}, reports: []*apiv1.AzDriverNode{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}},
		"a planned move is one step once the node is done": {volume: objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{attached("a", primary, 1), attached("b", replica, 0)},
			pods:        pods{user("a", time.Minute, ending), user("b", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a")},
			want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"a pod that returns to its node finds its volume there": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("a", time.Minute, ending), user("a", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a")}},
		"pods of two nodes do not take the volume from each other": {
			volume: objects.NewVolume(objects.Owned("b", 1, held)), attachments: all{attached("b", primary, 1)},
			pods: pods{user("a", time.Hour), user("b", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("b", "vol")}},
		"a volume that no pod wants any more is unpublished": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Unpublish: []string{"a"}}},
		"a volume whose attachment is lost is unpublished": {volume: objects.NewVolume(objects.Owned("a", 1, held)),
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Unpublish: []string{"a"}}},
		"a node that waits for a disk that Azure refuses to attach is not waited for, once its pods are gone": {
			volume:      objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{objects.NewAttachment("a", primary, 1, apiv1.AttachmentFailed)},
			reports:     []*apiv1.AzDriverNode{objects.Report("a", "vol")}, want: publishing.Step{Unpublish: []string{"a"}}},
		"a disk that Azure refuses to attach to one node goes to the next pod's node": {
			volume:      objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{objects.NewAttachment("a", primary, 1, apiv1.AttachmentFailed)},
			pods:        pods{user("b", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")},
			want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"a pod that is to end keeps a disk that Azure refuses to attach": {volume: objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{objects.NewAttachment("a", primary, 1, apiv1.AttachmentFailed)}, pods: pods{user("a", 0, ending)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}},
		"a shared disk that Azure refuses to attach is unpublished after the node is done": {
			volume: objects.NewVolume(multi), attachments: all{objects.NewAttachment("a", primary, 1, apiv1.AttachmentFailed)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}},
		"a volume is published again to a node that is another VM now": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{ofVM("/vm/old", attached("a", primary, 1))},
			pods: pods{user("a", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a")},
			want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"a"}}},
		"a node of several that is another VM now gets the volume when it is off the old one": {volume: objects.NewVolume(multi),
			attachments: all{ofVM("/vm/old", attached("a", primary, 1))}, pods: pods{user("a", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Unpublish: []string{"a"}}},
		"a node of several that is another VM now waits although the old VM has released the volume": {volume: objects.NewVolume(multi),
			attachments: all{ofVM("/vm/old", proven(attached("a", primary, 1)))}, pods: pods{user("a", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Unpublish: []string{"a"}}},
		"of a node that is gone only Azure can give a proof, upon an unpublish": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("b", 0)}, want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"so it is of one that Kubernetes has lost": {volume: objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{attached("a", primary, 1)}, pods: pods{user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, notReady: []string{"a"},
			want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"a pod that is being deleted on a lost node keeps the volume there: its kubelet may not know, and the pod continues to write": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			pods:    pods{user("a", time.Hour, ending), user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, notReady: []string{"a"}},
		"so does one that opted out of the failover, which will never act": {
			volume:      objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{attached("a", primary, 1), attached("b", replica, 0)},
			pods:        pods{user("a", time.Hour, ending, optedOut), user("b", 0, optedOut)},
			reports:     []*apiv1.AzDriverNode{objects.Report("a", "vol")}, notReady: []string{"a"}},
		"once such a pod has ended the volume is unpublished": {volume: objects.NewVolume(objects.Owned("a", 1, held)),
			attachments: all{attached("a", primary, 1), attached("b", replica, 0)}, pods: pods{user("b", 0, optedOut)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, notReady: []string{"a"},
			want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"a pod that is to end on a node that does not report keeps the volume there": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("a", time.Hour, ending), user("b", 0)}},
		"a lost node that had released the volume before is not waited for": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{attached("a", primary, 1)},
			pods: pods{user("a", time.Hour, ending), user("b", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a")},
			notReady: []string{"a"}, want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"a node that was fenced is not waited for, whatever its pods are": {
			volume:      objects.NewVolume(objects.Owned("a", 1, releasing), lost),
			attachments: all{proven(attached("a", primary, 1)), attached("b", replica, 0)},
			pods:        pods{user("a", time.Hour, ending), user("b", 0)},
			reports:     []*apiv1.AzDriverNode{objects.Report("a", "vol")},
			notReady:    []string{"a"}, want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"a pod that is to end on a lost node keeps a shared volume there": {volume: objects.NewVolume(multi),
			attachments: all{attached("a", primary, 1)}, pods: pods{user("a", time.Hour, ending), user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, notReady: []string{"a"},
			want: publishing.Step{Publish: []string{"b"}}},
		"a fence is waited for": {volume: objects.NewVolume(objects.Owned("a", 1, releasing), lost),
			attachments: all{attached("a", primary, 1)}, pods: pods{user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}, notReady: []string{"a"}},
		"a pod that is still on a node that is being fenced does not bring the volume back": {
			volume: objects.NewVolume(objects.Owned("a", 1, releasing), lost), attachments: all{attached("a", primary, 1)},
			pods: pods{user("a", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}},
		"after the fence the volume is published to the next node": {
			volume:      objects.NewVolume(objects.Owned("a", 1, releasing), lost),
			attachments: all{proven(attached("a", primary, 1)), attached("b", replica, 0)}, pods: pods{user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")},
			want:    publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"an unpublish that was cut short before the attachment was looked after is made again": {
			volume: objects.NewVolume(objects.Owned("", 1, released)), attachments: all{proven(attached("a", primary, 1))},
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Unpublish: []string{"a"}}},
		"nothing waits for the detach of a shared disk": {volume: objects.NewVolume(objects.Owned("", 1, released)),
			attachments: all{objects.Deleted(proven(attached("a", primary, 1)))}, pods: pods{user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Publish: []string{"b"}}},
		"the detach of a disk for one VM is waited for": {volume: objects.NewVolume(objects.Owned("", 1, released), forOne),
			attachments: all{objects.Deleted(proven(attached("a", primary, 1)))}, pods: pods{user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a")},
			want:    publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"a shared volume is published to all nodes that want it, and unpublished from those that do not": {
			volume: objects.NewVolume(multi), attachments: all{attached("a", primary, 1), attached("c", primary, 1)},
			pods:    pods{user("a", time.Minute), user("b", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a", "vol"), objects.Report("c")},
			want:    publishing.Step{Unpublish: []string{"c"}, Publish: []string{"b"}}},
		"a shared volume is published again to a node that had released it": {volume: objects.NewVolume(multi),
			attachments: all{proven(attached("a", primary, 1))}, pods: pods{user("a", 0)},
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Publish: []string{"a"}}},
		"a shared volume is not published again to a node that is being fenced and is Ready again": {
			volume:      objects.NewVolume(multi),
			attachments: all{objects.Deleted(fenced(objects.NewAttachment("a", primary, 1, apiv1.AttachmentDetaching)))},
			pods:        pods{user("a", time.Minute), user("b", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")},
			want: publishing.Step{Publish: []string{"b"}}},
		"the report of a node that is being fenced unpublishes no shared volume": {volume: objects.NewVolume(multi),
			attachments: all{objects.Deleted(fenced(objects.NewAttachment("a", primary, 1, apiv1.AttachmentDetaching)))},
			reports:     []*apiv1.AzDriverNode{objects.Report("a")}},
		"a node that was fenced keeps a shared volume until Kubernetes knows, also with one share": {
			volume:      objects.NewVolume(multi, forOne),
			attachments: all{objects.Deleted(fenced(proven(objects.NewAttachment("a", primary, 1, apiv1.AttachmentDetaching))))},
			pods:        pods{user("a", time.Minute)}, reports: []*apiv1.AzDriverNode{objects.Report("a")}},
		"nor before Kubernetes knows": {volume: objects.NewVolume(multi),
			attachments: all{objects.Deleted(fenced(proven(objects.NewAttachment("a", primary, 1, apiv1.AttachmentDetaching))))},
			pods:        pods{user("a", time.Minute)}, reports: []*apiv1.AzDriverNode{objects.Report("a")}},
		"a shared volume that is being unpublished is unpublished completely, although it is wanted there again": {
			volume: objects.NewVolume(multi), attachments: all{objects.Deleted(attached("a", primary, 1))},
			pods: pods{user("a", time.Minute), user("b", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a")},
			want: publishing.Step{Unpublish: []string{"a"}, Publish: []string{"b"}}},
		"and not before the node is done": {
			volume: objects.NewVolume(multi), attachments: all{objects.Deleted(attached("a", primary, 1))},
			pods: pods{user("a", time.Minute)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}},
		"a shared volume is not published again while the disk is being detached": {volume: objects.NewVolume(multi),
			attachments: all{objects.Deleted(proven(objects.NewAttachment("a", primary, 1, apiv1.AttachmentDetaching)))},
			pods:        pods{user("a", time.Minute)}, reports: []*apiv1.AzDriverNode{objects.Report("a")}},
		"and does when it is gone": {volume: objects.NewVolume(multi), pods: pods{user("a", time.Minute)},
			reports: []*apiv1.AzDriverNode{objects.Report("a")}, want: publishing.Step{Publish: []string{"a"}}},
		"a volume for one node whose attachment a user deleted remains with its pod": {
			volume: objects.NewVolume(objects.Owned("a", 1, held)), attachments: all{objects.Deleted(attached("a", primary, 1))},
			pods: pods{user("a", 0)}, reports: []*apiv1.AzDriverNode{objects.Report("a", "vol")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := publishing.Next(input(test.volume, test.attachments, test.pods, test.reports, test.notReady))
			if !slices.Equal(got.Publish, test.want.Publish) || !slices.Equal(got.Unpublish, test.want.Unpublish) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func input(v *apiv1.AzVolume, attachments []*apiv1.AzVolumeAttachment, pods []*corev1.Pod, reports []*apiv1.AzDriverNode,
	notReady []string) publishing.Input {
	report := func(node string) *apiv1.AzDriverNode {
		if i := slices.IndexFunc(reports, func(d *apiv1.AzDriverNode) bool { return d.Name == node }); i >= 0 {
			return reports[i]
		}
		return nil
	}
	return publishing.Input{
		Volume:      v,
		Attachments: attachments,
		Pods:        pods,
		Report:      report,
		Identity: func(node string) identity.Identity {
			return identity.Identify(identity.Node{DriverNode: report(node)}, nil)
		},
		KubernetesLost: func(node string) bool { return slices.Contains(notReady, node) },
	}
}

// A kubelet that was restarted after the unpublish does not unstage the volume.
func TestAnIdleNodeIsNotWaitedFor(t *testing.T) {
	volume := objects.NewVolume(objects.Owned("a", 1, apiv1.OwnershipHeld))
	attachments := []*apiv1.AzVolumeAttachment{objects.NewAttachment("a", apiv1.RolePrimary, 1, apiv1.AttachmentAttached)}
	reports := []*apiv1.AzDriverNode{objects.Report("a", "vol")}
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		idle bool
		want []string
	}{
		"a node that was used until now":   {nil, false, nil},
		"an idle node":                     {nil, true, []string{"a"}},
		"a node to which a pod came again": {[]*corev1.Pod{user("a", 0)}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(volume, attachments, test.pods, reports, nil)
			in.Idle = func(string) bool { return test.idle }
			if got := publishing.Next(in).Unpublish; !slices.Equal(got, test.want) {
				t.Errorf("got unpublishes from %q, want %q", got, test.want)
			}
		})
	}
}

// In random states, no step unpublishes a volume from a node that wants it, unless that had begun
// before, or from a node whose pods may be using it unseen. No step publishes it to a node that
// does not want it, or from which it is being unpublished. A volume for one node is published to
// one node at most, and only if no other node has it.
func TestAttachDetachNeverPublishesWithoutAPod(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	nodes := []string{"a", "b", "c"}
	states := []apiv1.AttachmentState{apiv1.AttachmentPending, apiv1.AttachmentAttaching, apiv1.AttachmentAttached,
		apiv1.AttachmentFailed, apiv1.AttachmentDetaching}
	some := func() bool { return random.IntN(2) == 0 }
	for round := range 20000 {
		v := objects.NewVolume()
		multi := random.IntN(3) == 0
		if multi {
			v.Spec.Access = apiv1.AccessMultiNode
		} else if some() {
			objects.Owned(nodes[random.IntN(3)], 1+random.Int64N(2),
				[]apiv1.OwnershipState{apiv1.OwnershipHeld, apiv1.OwnershipReleasing, apiv1.OwnershipReleased}[random.IntN(3)])(v)
		}
		var attachments []*apiv1.AzVolumeAttachment
		var pods []*corev1.Pod
		var reports []*apiv1.AzDriverNode
		var notReady []string
		wanted := map[string]bool{}
		for _, node := range nodes {
			if some() {
				a := objects.NewAttachment(node, []apiv1.Role{apiv1.RolePrimary, apiv1.RoleReplica}[random.IntN(2)],
					random.Int64N(3), states[random.IntN(len(states))])
				if some() {
					a.Status.Proof = &apiv1.ReleaseProof{Epoch: random.Int64N(3)}
				}
				if random.IntN(4) == 0 {
					objects.Deleted(a)
					if multi && some() {
						a.Finalizers = []string{apiv1.FinalizerFenced}
					}
				}
				attachments = append(attachments, a)
			}
			if some() {
				p := user(node, time.Duration(random.IntN(100)))
				if some() {
					ending(p)
				} else {
					wanted[node] = true
				}
				pods = append(pods, p)
			}
			if some() {
				reports = append(reports, objects.Report(node, "vol"))
			} else if some() {
				reports = append(reports, objects.Report(node))
			}
			if random.IntN(4) == 0 {
				notReady = append(notReady, node)
			}
		}
		in := input(v, attachments, pods, reports, notReady)
		got := publishing.Next(in)
		leaving, proven := map[string]bool{}, map[string]bool{}
		for _, a := range attachments {
			leaving[a.Spec.NodeName] = multi && a.DeletionTimestamp != nil
			proven[a.Spec.NodeName] = a.Status.Proof != nil && a.Status.Proof.Epoch >= a.Spec.Epoch
		}
		for _, node := range got.Unpublish {
			if wanted[node] && !leaving[node] {
				t.Fatalf("round %d: unpublished from node %s, whose pods want it: %+v", round, node, got)
			}
			saysNot := in.Report(node) != nil && len(in.Report(node).Status.StagedVolumes) == 0
			there := slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
			if there && !proven[node] && !saysNot {
				t.Fatalf("round %d: unpublished from node %s, whose pods may be using it: %+v", round, node, got)
			}
		}
		for _, node := range got.Publish {
			if !wanted[node] || slices.Contains(notReady, node) || leaving[node] {
				t.Fatalf("round %d: given to node %s: %+v", round, node, got)
			}
		}
		if c := v.Status.Primary; !multi && len(got.Publish) > 0 {
			other := c != nil && c.State != apiv1.OwnershipReleased && c.NodeName != got.Publish[0] &&
				!slices.Contains(got.Unpublish, c.NodeName)
			if len(got.Publish) > 1 || other {
				t.Fatalf("round %d: %+v with the ownership %+v", round, got, c)
			}
		}
	}
}

func TestAVolumeIsPublishedForTheOldestPodOfANodeThatIsNotToEnd(t *testing.T) {
	named := func(namespace, name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Namespace, p.Name = namespace, name }
	}
	pods := []*corev1.Pod{
		user("a", 0, named("one", "young")), user("a", time.Hour, named("two", "same")),
		user("a", time.Hour, named("one", "same")),
		user("a", 2*time.Hour, named("one", "ends"), ending), user("b", 3*time.Hour, named("one", "elsewhere")),
	}
	for range 2 {
		if p := publishing.PublishedFor(pods, "a"); p == nil || p.Namespace != "one" || p.Name != "same" {
			t.Errorf("got %+v", p)
		}
		slices.Reverse(pods) // the cache has no order
	}
	if p := publishing.PublishedFor(pods, "c"); p != nil {
		t.Errorf("got %+v for a node without pods", p)
	}
}
