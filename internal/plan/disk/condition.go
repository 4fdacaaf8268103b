package disk

// Condition types of AzVolume that speak of the disk.
const (
	ConditionReady   = "Ready"
	ConditionUpdated = "Updated"
	// ConditionDiskChanged is there once the disk was found different from its record.
	ConditionDiskChanged = "DiskChanged"
	// ConditionWritesLost is there for a day after a node could not write all data to the disk.
	ConditionWritesLost = "WritesLost"
)
