package paramtable

// OutOfRangeError is the error for a size that no disk can have.
type OutOfRangeError struct{ Message string }

// Error returns the message.
func (e *OutOfRangeError) Error() string { return e.Message }
