package explain

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
)

// CauseOfError is the cause of a recorded failure of a request to Azure; "" if neither its kind nor its
// code decides it.
func CauseOfError(e *apiv1.Error) ID { return ID(refusal.ByAzure(e, "")) }

// failed is a finding about a recorded failure. doing says what Azure was asked for, as in "attach
// the disk to node a". failingSince is when it began to fail.
func (f Facts) failed(e *apiv1.Error, otherwise ID, doing string, failingSince time.Time) Finding {
	id := ID(refusal.ByAzure(e, string(otherwise)))
	v := find(id, "Azure does not %s. %s", doing, CauseOf(id).Means).quoting(e.Message)
	if id == otherwise {
		v.Sentence = "Azure does not " + doing + "."
	}
	again := f.Now.Add(operation.RetryIn(failingSince, e.Time.Time, f.Now))
	if v.Outcome == Waits {
		return v.then("nothing: the driver asks again at about %s", f.clock(again))
	}
	return v.then("%s. The driver asks again at about %s", v.Next, f.clock(again))
}
