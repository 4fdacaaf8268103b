package placement

// Reasons of the conditions, events and logs of a volume's replicas. Each is used for one thing.
const (
	ReasonReplicasAttached  = "ReplicasAttached"
	ReasonReplicasMissing   = "ReplicasMissing"
	ReasonReplicasNotWanted = "ReplicasNotWanted"
	reasonReplicaPlaced     = "ReplicaPlaced"
	reasonReplicaSurplus    = "ReplicaSurplus"
	ReasonReplicaNodeLost   = "ReplicaNodeLost"
	reasonReplicaDrained    = "ReplicaDrained"
	reasonReplicaDisturbed  = "ReplicaDisturbed"
	reasonReplicaMisplaced  = "ReplicaMisplaced"
	reasonReplicaFailed     = "ReplicaFailed"
	ReasonReplicasExpired   = "ReplicasExpired"
	ReasonVolumeReleased    = "VolumeReleased"
)

// ConditionReplicasAttached is the condition type of AzVolume about its replicas.
const ConditionReplicasAttached = "ReplicasAttached"
