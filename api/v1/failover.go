package v1

// TaintNodeLost, with the effect NoSchedule, keeps new pods off a node that is fenced from volumes,
// until it is Ready again and every fence is complete. Kubernetes itself learns of the loss much
// later, and would start the pods on the lost node again.
const TaintNodeLost = GroupName + "/node-lost"

// TaintNodeUnresponsive, with the effect NoSchedule, keeps new pods off a node that has not
// answered a request to fence (AzDriverNode, spec.requests.fences) in time, until a sign of life
// comes through the API server. The node may be running, and cut off from the API server: then it
// starts no new pod, and Kubernetes learns of it much later.
const TaintNodeUnresponsive = GroupName + "/node-unresponsive"

// FinalizerFenced is on the attachment of a MultiNode volume whose node is fenced because it was
// lost, until Kubernetes is informed: the attachment is the record of the decision.
const FinalizerFenced = GroupName + "/fenced"

// AnnotationScaleDownDisabled on a Node names the annotations for autoscalers that the controller has
// set there, separated by commas. The controller removes only these.
const AnnotationScaleDownDisabled = GroupName + "/scale-down-disabled"
