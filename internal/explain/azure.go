package explain

import (
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// byCode are the findings that Azure's own error code decides.
var byCode = map[string]ID{
	"QuotaExceeded":                     "QuotaExceeded",
	"ResourceQuotaExceeded":             "QuotaExceeded",
	"SkuNotAvailable":                   "SKUNotAvailable",
	"AllocationFailed":                  "NoCapacityAtAzure",
	"ZonalAllocationFailed":             "NoCapacityAtAzure",
	"OverconstrainedAllocationRequest":  "NoCapacityAtAzure",
	"AuthorizationFailed":               "PermissionMissing",
	"LinkedAuthorizationFailed":         "PermissionMissing",
	"DenyAssignmentAuthorizationFailed": "DenyAssignment",
	"InvalidAuthenticationToken":        "Unauthenticated",
	"ExpiredAuthenticationToken":        "Unauthenticated",
	"SubscriptionNotFound":              "Unauthenticated",
	"ScopeLocked":                       "ScopeLocked",
	"RequestDisallowedByPolicy":         "PolicyRefused",
}

// refusedByAzure is the cause of a recorded failure of a request to Azure. otherwise is the cause if
// neither kind nor code decides more.
func refusedByAzure(e *apiv1.Error, otherwise ID) ID {
	if id, ok := byCode[e.Code]; ok {
		return id
	}
	switch provisioner.Kind(e.Kind) {
	case provisioner.RateLimited:
		return "Throttled"
	case provisioner.Unavailable:
		return "AzureUnavailable"
	case provisioner.NotFound:
		return "NotFoundAtAzure"
	case provisioner.InsufficientCapacity:
		return "NoSlot"
	case provisioner.Unauthorized:
		if e.Code == "" {
			return "Unauthenticated"
		}
	case provisioner.AlreadyExists, provisioner.Conflict, provisioner.FailedPrecondition, provisioner.InvalidArgument,
		provisioner.Unsupported:
	}
	return otherwise
}

// CauseOfError is the cause of a recorded failure of a request to Azure; "" if neither its kind nor its
// code decides it.
func CauseOfError(e *apiv1.Error) ID { return refusedByAzure(e, "") }

// failed is a finding about a recorded failure. doing says what Azure was asked for, as in "attach
// the disk to node a". failingSince is when it began to fail.
func (f Facts) failed(e *apiv1.Error, otherwise ID, doing string, failingSince time.Time) Finding {
	id := refusedByAzure(e, otherwise)
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
