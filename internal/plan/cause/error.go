package cause

import (
	"regexp"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// byCode are the causes that Azure's own error code decides.
var byCode = map[string]string{
	"QuotaExceeded":                     apiv1.ReasonQuotaExceeded,
	"ResourceQuotaExceeded":             apiv1.ReasonQuotaExceeded,
	"SkuNotAvailable":                   apiv1.ReasonSKUNotAvailable,
	"AllocationFailed":                  apiv1.ReasonNoCapacityAtAzure,
	"ZonalAllocationFailed":             apiv1.ReasonNoCapacityAtAzure,
	"OverconstrainedAllocationRequest":  apiv1.ReasonNoCapacityAtAzure,
	"AuthorizationFailed":               apiv1.ReasonPermissionMissing,
	"LinkedAuthorizationFailed":         apiv1.ReasonPermissionMissing,
	"DenyAssignmentAuthorizationFailed": apiv1.ReasonDenyAssignment,
	"InvalidAuthenticationToken":        apiv1.ReasonUnauthenticated,
	"ExpiredAuthenticationToken":        apiv1.ReasonUnauthenticated,
	"SubscriptionNotFound":              apiv1.ReasonUnauthenticated,
	"ScopeLocked":                       apiv1.ReasonScopeLocked,
	"RequestDisallowedByPolicy":         apiv1.ReasonPolicyRefused,
}

// OfError returns the cause of a recorded failure of a request to Azure. otherwise is the cause if
// neither kind nor code decides more.
func OfError(e *apiv1.Error, otherwise string) string {
	if cause, ok := byCode[e.Code]; ok {
		return cause
	}
	switch provisioner.Kind(e.Reason) {
	case provisioner.RateLimited:
		return apiv1.ReasonThrottled
	case provisioner.Unavailable:
		return apiv1.ReasonAzureUnavailable
	case provisioner.NotFound:
		return apiv1.ReasonNotFoundAtAzure
	case provisioner.InsufficientCapacity:
		return apiv1.ReasonNoDiskSlot
	case provisioner.Unauthorized:
		if e.Code == "" {
			return apiv1.ReasonUnauthenticated
		}
	case provisioner.FailedPrecondition, provisioner.InvalidArgument, provisioner.Unsupported, provisioner.Unimplemented:
		if e.Code == "" { // each refusal of Azure has one
			return apiv1.ReasonRefusedByDriver
		}
	case provisioner.AlreadyExists, provisioner.Conflict:
	}
	return otherwise
}

// answered matches the words of package provisioner/azure for a refusal, with Azure's code.
var answered = regexp.MustCompile(`Azure answered \d+ ([A-Za-z]+):`)

// OfAnswer returns the cause of a failure that a text tells, as an event does. ok is false if the text is not about
// an answer of Azure.
func OfAnswer(text, otherwise string) (id string, ok bool) {
	found := answered.FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	return OfError(&apiv1.Error{Code: found[1]}, otherwise), true
}
