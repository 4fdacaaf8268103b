package nodereport

import (
	"context"
	"fmt"
	"slices"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// Restage writes that a volume which was staged has to be staged again, because its device is gone.
// The entry stays: the volume is in use until it is forgotten. A volume that has no entry gets
// none.
func (r *Reporter) Restage(ctx context.Context, volume string) error {
	err := r.update(ctx, func(status *apiv1.AzDriverNodeStatus) {
		if i := slices.IndexFunc(status.StagedVolumes, named(volume)); i >= 0 {
			status.StagedVolumes[i].Phase = apiv1.PhaseStaging
		}
	})
	if err != nil {
		return fmt.Errorf("report volume %s as being staged again: %w", volume, err)
	}
	return nil
}

// Entries returns the entries of the report as this process wrote them last. It reads nothing at
// the API server; before the first write of the process there are none.
func (r *Reporter) Entries(ctx context.Context) ([]apiv1.StagedVolume, error) {
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a write of the report: %w", ctx.Err())
	}
	defer func() { <-r.writing }()
	return slices.Clone(r.staged), nil
}
