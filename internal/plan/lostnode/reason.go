package lostnode

// Reasons of the events and logs of a failover, in the order in which they come.
const (
	ReasonFailoverStarted    = "FailoverStarted"
	ReasonFailoverHeldBack   = "FailoverHeldBack"
	ReasonNodeQuarantined    = "NodeQuarantined"
	ReasonNodeUnresponsive   = "NodeUnresponsive"
	ReasonOutOfService       = "OutOfService"
	ReasonFailoverProven     = "FailoverProven"
	ReasonFailoverPodDeleted = "FailoverPodDeleted"
	ReasonFailoverPruned     = "FailoverPruned"
	ReasonFailoverUnblocked  = "FailoverUnblocked"
	ReasonNodeBack           = "NodeBack"
	ReasonFalseAlarm         = "FalseAlarm"
	ReasonWriteRefused       = "WriteRefused"
)
