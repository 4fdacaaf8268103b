package drivernode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

const (
	// surveyAgain is the least time between two surveys. A node that is due in between is read
	// alone.
	surveyAgain = time.Minute
	// surveyTimeout limits a survey, which has a request for each page of VMs.
	surveyTimeout = 5 * time.Minute
	// surveyLost is when a node that waits for a survey asks for it again; usually the end of the
	// survey requests the node.
	surveyLost = surveyTimeout + 10*time.Second
)

// survey is what lists said about the VMs of the nodes. Lists may lag behind, so that an answer
// proves nothing: if it agrees with the objects, the VM need not be read, and otherwise the VM is
// read alone before anything is written.
type survey struct {
	// began is when the latest survey began, and next when the one after it may.
	began, next time.Time
	running     bool
	// answers by node. Each is used once.
	answers map[types.NamespacedName]listed
	// waiting are the nodes that were due during the survey, and stale those whose disks may have
	// changed in a way that its lists do not show.
	waiting, stale map[types.NamespacedName]bool
	// queue is the controller's queue; nil if the Reconciler is called without one.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// listed is what a survey that began at a time said about a node's VM.
type listed struct {
	vmID  string
	at    time.Time
	disks []provisioner.Attachment
}

// listing returns the answer of a survey for a node, nil if there is none: then the VM has to be
// read alone. If the node and others are due, it makes a survey. pending says that another worker
// makes one, and that its end requests the node again.
func (r *Reconciler) listing(ctx context.Context, d *apiv1.AzDriverNode, due bool, pressed time.Time) (answer *listed,
	pending bool, err error) {
	if answer := r.takeListed(d, pressed); answer != nil || !due {
		return answer, false, nil
	}
	if begun, running := r.beginSurvey(client.ObjectKeyFromObject(d)); !begun {
		return nil, running, nil
	}
	if err := r.makeSurvey(ctx, d.Namespace); err != nil {
		return nil, false, err
	}
	return r.takeListed(d, pressed), false, nil
}

// makeSurvey makes the survey that has begun. A list that fails is no error: the VMs on it are read
// alone.
func (r *Reconciler) makeSurvey(ctx context.Context, namespace string) error {
	var (
		members map[types.NamespacedName]string
		found   map[string][]provisioner.Attachment
		failed  error
	)
	defer func() { r.endSurvey(members, found, failed) }() // the others wait for it, whatever happens here
	all, due, err := r.members(ctx, namespace)
	if err != nil || len(due) < 2 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	members = all
	if found, failed = r.Cloud.Attachments().ListMany(ctx, due); failed != nil {
		ctrl.LoggerFrom(ctx).Error(failed, "not all VMs could be listed; those that were not are read one by one", "due",
			len(due), "listed", len(found))
	}
	return nil
}

// members returns the VMs of all nodes, and the VMs of the nodes that are due now or before the
// next survey may be made.
func (r *Reconciler) members(ctx context.Context, namespace string) (all map[types.NamespacedName]string, due []string,
	err error) {
	var list apiv1.AzDriverNodeList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list AzDriverNodes: %w", err)
	}
	all = make(map[types.NamespacedName]string, len(list.Items))
	for _, d := range kube.Pointers(list.Items) {
		if d.Spec.VMID == "" || d.DeletionTimestamp != nil {
			continue
		}
		all[client.ObjectKeyFromObject(d)] = d.Spec.VMID
		if r.wait(d, time.Time{}) <= surveyAgain {
			due = append(due, d.Spec.VMID)
		}
	}
	slices.Sort(due)
	return all, due, nil
}

// takeListed takes the answer for a node, unless it is about another VM, or from before an
// attachment there found no slot.
func (r *Reconciler) takeListed(d *apiv1.AzDriverNode, pressed time.Time) *listed {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	answer, ok := r.survey.answers[key]
	delete(r.survey.answers, key)
	if !ok || !strings.EqualFold(answer.vmID, d.Spec.VMID) || pressed.After(answer.at.Truncate(time.Second)) ||
		r.Clock.Since(answer.at) >= lookEvery {
		return nil
	}
	return &answer
}

// beginSurvey reports whether the caller shall make a survey, and if not, whether one is running.
func (r *Reconciler) beginSurvey(node types.NamespacedName) (begun, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, now := &r.survey, r.Clock.Now()
	if s.running {
		s.waiting[node] = true
		return false, true
	}
	if now.Before(s.next) {
		return false, false
	}
	s.began, s.running = now, true
	s.waiting, s.stale = map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	return true, true
}

// endSurvey records the answers, and requests the nodes that have one or wait for one. If a list
// failed, the next survey is made later.
func (r *Reconciler) endSurvey(members map[types.NamespacedName]string, found map[string][]provisioner.Attachment, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.survey
	s.running = false
	again := s.waiting
	if members != nil {
		s.next = s.began.Add(surveyAgain)
		s.answers = make(map[types.NamespacedName]listed, len(found))
	}
	if err != nil {
		s.next = s.began.Add(lookEvery)
	}
	for node, vmID := range members {
		if disks, ok := found[strings.ToLower(vmID)]; ok && !s.stale[node] {
			s.answers[node] = listed{
				vmID:  vmID,
				at:    s.began,
				disks: disks,
			}
			again[node] = true
		}
	}
	if s.queue == nil {
		return
	}
	for _, node := range slices.SortedFunc(maps.Keys(again),
		func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		s.queue.Add(reconcile.Request{NamespacedName: node})
	}
}
