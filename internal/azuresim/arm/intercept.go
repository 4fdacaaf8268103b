package arm

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
)

// OperationFaults applies the rules of stage operation; it is meant for compute.Options.Intercept.
func OperationFaults(rules *faults.Set) func(op *operations.Operation) (time.Duration, *armerror.Error) {
	return func(op *operations.Operation) (time.Duration, *armerror.Error) {
		id, err := compute.ParseID(op.Target, "target")
		if err != nil {
			return 0, nil
		}
		name := id.Name
		if id.Instance != "" {
			name += "_" + id.Instance
		}
		e := rules.Strike(faults.Operation, faults.Call{
			Kind:      id.Kind,
			Name:      name,
			Operation: op.Kind,
		})
		return e.Delay, e.Err
	}
}
