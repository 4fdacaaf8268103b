package placement

// Reasons of the conditions, events and logs of a volume's replicas. Each is used for one thing.
const (
	ReasonReplicasAttached  = "ReplicasAttached"
	ReasonReplicasMissing   = "ReplicasMissing"
	ReasonReplicasNotWanted = "ReplicasNotWanted"
	ReasonReplicaPlaced     = "ReplicaPlaced"
	ReasonReplicaSurplus    = "ReplicaSurplus"
	ReasonReplicaNodeLost   = "ReplicaNodeLost"
	ReasonReplicaDrained    = "ReplicaDrained"
	ReasonReplicaDisturbed  = "ReplicaDisturbed"
	ReasonReplicaMisplaced  = "ReplicaMisplaced"
	ReasonReplicaFailed     = "ReplicaFailed"
	ReasonReplicasExpired   = "ReplicasExpired"
	ReasonVolumeReleased    = "VolumeReleased"
	ReasonReplicaKept       = "ReplicaKept"
)

// ConditionReplicasAttached is the condition type of AzVolume about its replicas.
const ConditionReplicasAttached = "ReplicasAttached"
