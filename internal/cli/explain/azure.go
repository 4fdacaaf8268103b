package explain

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// failed is a finding about a recorded failure. doing says what Azure was asked for, as in "attach
// the disk to node a". failingSince is when it began to fail.
func (f Facts) failed(e *apiv1.Error, otherwise string, doing string, failingSince time.Time) Finding {
	id := cause.OfError(e, otherwise)
	v := find(id, "Azure does not %s. %s", doing, cause.Of(id).Means).quoting(e.Message)
	switch id {
	case otherwise:
		v.Sentence = "Azure does not " + doing + "."
	case apiv1.ReasonRefusedByDriver:
		v.Sentence = "The driver does not " + doing + "."
	}
	again := f.Now.Add(operation.RetryIn(failingSince, e.FailureTime.Time, f.Now))
	if v.Outcome == cause.Waits {
		return v.then("nothing: the driver asks again at about %s", f.clock(again))
	}
	return v.then("%s. The driver asks again at about %s", v.Next, f.clock(again))
}
