package placement

// ConditionReplicasAttached is the condition type of AzVolume about its replicas.
const ConditionReplicasAttached = "ReplicasAttached"
