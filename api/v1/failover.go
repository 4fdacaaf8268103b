package v1

// NodeConditionOutOfService says whether the controller put Kubernetes' out-of-service taint on the Node. It is
// written before the taint, so that the controller takes back its own taint and nobody else's.
const NodeConditionOutOfService = "OutOfService"

// Reasons of the condition OutOfService.
const (
	// OutOfServiceVMDown: True; Azure says that the VM is stopped, deallocated or gone.
	OutOfServiceVMDown = "VMDown"
	// OutOfServiceNodeBack: False; the node came back and the taint was taken away.
	OutOfServiceNodeBack = "NodeBack"
)

// TaintNodeLost, with the effect NoSchedule, keeps new pods from a node from which volumes were taken, until it is back and nothing is being
// taken from it any more. Kubernetes itself learns of the loss much later, and would put the pods back on the lost node.
const TaintNodeLost = GroupName + "/node-lost"

// FinalizerFenced is on the attachment of a MultiNode volume that is taken from a lost node, until Kubernetes knows:
// the attachment is the record of the decision.
const FinalizerFenced = GroupName + "/fenced"
