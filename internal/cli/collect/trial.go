package collect

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
)

// trialName is of objects that are never stored.
const trialName = "azuredisk-doctor-trial"

// try asks the API server to create a lease and an AzVolume in the driver's namespace without effect:
// admission is asked, and its answer says who refuses what the driver writes.
func (r *reader) try(f *checks.Facts, writer client.Writer) step {
	own := metav1.ObjectMeta{Namespace: f.DriverNamespace, Name: trialName}
	volume := &apiv1.AzVolume{ObjectMeta: own, Spec: apiv1.AzVolumeSpec{
		Origin: apiv1.OriginAdopted, Access: apiv1.AccessSingleNode, CapacityBytes: 1 << 30,
		Disk: apiv1.DiskParameters{
			SubscriptionID: "00000000-0000-0000-0000-000000000000",
			ResourceGroup:  "trial",
			Name:           trialName,
			MaxShares:      1,
			CachingMode:    "None",
			DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
		},
	}}
	f.Trials = []checks.Trial{{What: "a lease"}, {What: "an AzVolume"}}
	write := func(trial *checks.Trial, o client.Object) step {
		return func(ctx context.Context) error {
			err := writer.Create(ctx, o, client.DryRunAll)
			switch {
			case err == nil:
			case ownRights(err), apierrors.IsNotFound(err):
				return r.missed(checks.TrialWrites, err)
			default:
				trial.Err = err
			}
			return nil
		}
	}
	return together(write(&f.Trials[0], &coordinationv1.Lease{ObjectMeta: own}), write(&f.Trials[1], volume))
}

// ownRights reports whether the user may not make the write. Webhooks and policies answer with the same
// reason and code; only the authorizer says it in these words.
func ownRights(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource")
}
