package nodereport

import (
	"context"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Fences returns the newest requests to fence that the process has seen and this node's results,
// and a channel that is closed when either changes. It returns neither before the first write of
// the process: until then the results of earlier processes are not known.
func (r *Reporter) Fences() (requests []apiv1.FenceRequest, results []apiv1.FenceResult, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.written:
		return slices.Clone(r.requests), slices.Clone(r.fenced), r.fencesChanged
	default:
		return nil, nil, r.written
	}
}

// Fenced writes the result of a fence, which replaces the earlier one of the same volume.
func (r *Reporter) Fenced(ctx context.Context, result apiv1.FenceResult) error {
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		status.FenceResults = append(slices.DeleteFunc(status.FenceResults, fenceOf(result.VolumeName)), result)
	})
	if err != nil {
		return fmt.Errorf("report the fence of node %s from volume %s: %w", result.NodeName, result.VolumeName, err)
	}
	return nil
}

// ForgetFence removes the result of a volume's fence. It is called after this node's fence-only
// registration has ended.
func (r *Reporter) ForgetFence(ctx context.Context, volume string) error {
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		status.FenceResults = slices.DeleteFunc(status.FenceResults, fenceOf(volume))
	})
	if err != nil {
		return fmt.Errorf("report the end of the fence of volume %s: %w", volume, err)
	}
	return nil
}

func fenceOf(volume string) func(apiv1.FenceResult) bool {
	return func(result apiv1.FenceResult) bool { return result.VolumeName == volume }
}

// setRequests stores the requests of an object that was read. The caller holds mu.
func (r *Reporter) setRequests(read *apiv1.AzDriverNode) {
	if !apiequality.Semantic.DeepEqual(r.requests, read.FenceRequests()) {
		r.requests = read.DeepCopy().FenceRequests()
		r.announceFences()
	}
}

// setFenced stores the results of a report that the API server has. The caller holds writing and
// mu.
func (r *Reporter) setFenced(written *apiv1.AzDriverNode) {
	if !apiequality.Semantic.DeepEqual(r.fenced, written.Status.FenceResults) {
		r.fenced = written.DeepCopy().Status.FenceResults
		r.announceFences()
	}
}

func (r *Reporter) announceFences() {
	close(r.fencesChanged)
	r.fencesChanged = make(chan struct{})
}
