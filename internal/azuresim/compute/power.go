package compute

import (
	"encoding/json"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// Power operations.
const (
	PowerOpStart      = "start"
	PowerOpOff        = "powerOff"
	PowerOpDeallocate = "deallocate"
	PowerOpRestart    = "restart"
	PowerOpHibernate  = "hibernate" // deallocate?hibernate=true
)

// SetPower starts, stops, deallocates or restarts a VM; it waits in line behind updates under way.
func (c *Cloud) SetPower(id ID, what string) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		vm, err := c.mustVM(tx, id)
		if err != nil {
			return nil, err
		}
		ahead, err := c.engine.Lane(tx, vmLane(id))
		if err != nil {
			return nil, err
		}
		for _, op := range ahead {
			if op.Kind == opVMDelete || len(ahead) > maxQueue {
				return nil, armerror.Conflict()
			}
		}
		if what == PowerOpRestart && vm.Power == PowerDeallocated {
			return nil, armerror.NotAllowed("Operation 'restart' is not allowed on VM '%s' since the VM is deallocated.", vm.Name)
		}
		if err := vm.mayHibernate(what); err != nil {
			return nil, err
		}
		kind := map[string]struct {
			op     string
			during string
			step   latency.Step
		}{
			PowerOpStart:      {opVMStart, PowerStarting, latency.VMStart},
			PowerOpOff:        {opVMPowerOff, PowerStopping, latency.VMPowerOff},
			PowerOpDeallocate: {opVMDeallocate, PowerDeallocating, latency.VMDeallocate},
			PowerOpHibernate:  {opVMHibernate, PowerDeallocating, latency.VMDeallocate},
			PowerOpRestart:    {opVMRestart, vm.Power, latency.VMRestart},
		}[what]
		if len(ahead) == 0 && !(what == PowerOpStart && vm.Power == PowerRunning) {
			vm.Power = kind.during
		}
		vm.Provisioning = Updating
		if err := vmTable.Put(tx, id.Key(), vm); err != nil {
			return nil, err
		}
		return c.enqueue(tx, job{
			kind:     kind.op,
			lane:     vmLane(id),
			target:   vm.ID,
			location: vm.Location,
			duration: c.Latency.Draw(kind.step),
		})
	})
}

// mayHibernate refuses to hibernate a VM without the capability, or one that does not run.
func (vm *VM) mayHibernate(what string) error {
	if what != PowerOpHibernate {
		return nil
	}
	var capabilities struct {
		HibernationEnabled bool `json:"hibernationEnabled"`
	}
	if raw := vm.Properties["additionalCapabilities"]; raw == nil || json.Unmarshal(raw, &capabilities) != nil ||
		!capabilities.HibernationEnabled {
		return armerror.NotAllowed("The Hibernate operation cannot be performed on VM '%s' because it does not have the hibernation capability enabled.", vm.Name)
	}
	if vm.Power != PowerRunning {
		return armerror.NotAllowed("The Hibernate operation cannot be performed on VM '%s' because it is not running.", vm.Name)
	}
	return nil
}
