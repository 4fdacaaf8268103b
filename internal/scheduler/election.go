package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=azure-disk-csi,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=azure-disk-csi,resources=leases,resourceNames=azuredisk-scheduler,verbs=get;update

// leaseName is the lease that the replicas of the extender compete for.
const leaseName = "azuredisk-scheduler"

// elect competes for the lease until ctx is done. The replica that holds it is called active in its
// log and its metric. The lease has no other effect: every replica answers, and a replica that loses
// the lease continues to answer, so that the extender also works while the API server is unreachable.
func elect(ctx context.Context, config *rest.Config, namespace, identity string, metrics *metrics) error {
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for the lease: %w", err)
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("lease", namespace+"/"+leaseName, "identity", identity)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Name:            leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				metrics.leader.Set(1)
				log.Info("became the active extender")
			},
			OnStoppedLeading: func() {
				metrics.leader.Set(0)
				log.Info("is no longer the active extender")
			},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the election: %w", err)
	}
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	return nil
}
