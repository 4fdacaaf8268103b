package disk

// Reasons of the conditions, events and logs of a volume's disk. Each is used for one thing.
const (
	ReasonCreating       = "Creating"
	ReasonCreated        = "Created"
	ReasonFilling        = "Filling"
	ReasonCreationFailed = "CreationFailed"
	ReasonUpdating       = "Updating"
	ReasonUpdated        = "Updated"
	ReasonUpdateFailed   = "UpdateFailed"
	ReasonUpdateRefused  = "UpdateRefused"
	ReasonConverting     = "Converting"
	ReasonConverted      = "Converted"
	ReasonDeleting       = "Deleting"
	ReasonDeletionFailed = "DeletionFailed"
	ReasonDeletionHeld   = "DeletionHeld"
	ReasonDiskKept       = "DiskKept"
	ReasonForeignDisk    = "ForeignDisk"
	ReasonVolumeUpdates  = "VolumeUpdates"
	reasonDiskChanged    = "DiskChanged"
	reasonDiskAsRecorded = "DiskAsRecorded"
	ReasonNotReserved    = "NotReserved"
	ReasonFlushFailed    = "FlushFailed"
)

// Condition types of AzVolume that speak of the disk.
const (
	ConditionReady   = "Ready"
	ConditionUpdated = "Updated"
	// ConditionDiskChanged is there once the disk was found different from its record.
	ConditionDiskChanged = "DiskChanged"
	// ConditionWritesLost is there for a day after a node could not write all data to the disk.
	ConditionWritesLost = "WritesLost"
)
