package identity

// Reasons of the conditions, events and logs about which VM a node is. Each is used for one thing.
const (
	ReasonNodeUnknown    = "NodeUnknown"
	ReasonNodeGone       = "NodeGone"
	ReasonVMEstablished  = "VMEstablished"
	ReasonVMContradicted = "VMContradictsProviderID"
	ReasonVMInvalid      = "VMIDInvalid"
	ReasonVMContested    = "VMNamedTwice"
)
