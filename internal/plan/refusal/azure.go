package refusal

import (
	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// byCode are the causes that Azure's own error code decides.
var byCode = map[string]string{
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

// ByAzure is the cause of a recorded failure of a request to Azure, as package explain and the page on
// troubleshooting name it. otherwise is the cause if neither kind nor code decides more.
func ByAzure(e *apiv1.Error, otherwise string) string {
	if cause, ok := byCode[e.Code]; ok {
		return cause
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
