package imds

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

const (
	// readEvery is how often the scheduled events are read, as Azure recommends. After a failure the
	// interval grows up to retryMost.
	readEvery, retryMost = time.Second, 30 * time.Second
	// forgetAfter is how long the last announcement counts while the service does not answer. The
	// service may not answer during the maintenance that it has announced.
	forgetAfter = 5 * time.Minute
)

// Follower follows the scheduled events of a VM.
type Follower struct {
	// Read returns the present document.
	Read func(context.Context) (maintenance.Document, error)
	// VMID is the resource ID of the VM.
	VMID string
	// Report gets what is announced for the VM when that has changed; nil while nothing is known,
	// because the service does not answer. It must not block.
	Report func(*apiv1.NodeMaintenance)
	Clock  clock.Clock
}

// Start follows the events until ctx ends. What another process has reported stays until the service
// has answered, or has not answered for some minutes.
func (f Follower) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	var known *apiv1.NodeMaintenance
	answered, interval, failing, reported := f.Clock.Now(), readEvery, false, false
	report := func(now *apiv1.NodeMaintenance) {
		if reported && apiequality.Semantic.DeepEqual(known, now) {
			return
		}
		known, reported = now, true
		f.Report(now.DeepCopy())
	}
	for {
		document, err := f.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			answered, interval, failing = f.Clock.Now(), readEvery, false
			report(&apiv1.NodeMaintenance{Events: maintenance.Events(document, f.VMID)})
		default:
			if interval = min(2*interval, retryMost); !failing {
				log.Info("the scheduled events of this VM cannot be read", "reason", err.Error())
			}
			failing = true
			if f.Clock.Since(answered) >= forgetAfter {
				report(nil)
			}
		}
		timer := f.Clock.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}
