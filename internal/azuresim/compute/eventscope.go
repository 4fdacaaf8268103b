package compute

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

// EventScope says with which other VMs a VM shares its scheduled events.
type EventScope struct {
	// Key is the same for all VMs that share their events: those of a scale set or of an
	// availability set. Any other VM is alone.
	Key string
	// Name is what events call the VM.
	Name string
	// TerminateNotice is the notice of a Terminate that the scale set or the VM is configured with,
	// 0 if it is not.
	TerminateNotice time.Duration
}

// EventScope returns the scope of the VM of that name on the data plane.
func (c *Cloud) EventScope(vm string) (EventScope, error) {
	return view(c, func(tx *store.Tx) (EventScope, error) {
		found, err := c.vmByPlaneKey(tx, vm)
		if err != nil {
			return EventScope{}, err
		}
		scope := EventScope{
			Key:             found.ID.Key(),
			Name:            found.Name,
			TerminateNotice: terminateNotice(found.Properties),
		}
		var availability struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(found.Properties["availabilitySet"], &availability)
		switch {
		case found.ScaleSet != "":
			scope.Key = strings.ToLower(found.ScaleSet)
			ss, err := scaleSetTable.Get(tx, scope.Key)
			if err != nil {
				return EventScope{}, err
			}
			if ss != nil && scope.TerminateNotice == 0 {
				var profile Properties
				_ = json.Unmarshal(ss.Properties["virtualMachineProfile"], &profile)
				scope.TerminateNotice = terminateNotice(profile)
			}
		case availability.ID != "":
			scope.Key = strings.ToLower(availability.ID)
		}
		return scope, nil
	})
}

// terminateNotice is the notice of a Terminate in the scheduledEventsProfile of a VM or of the model
// of a scale set: 5 to 15 minutes as an ISO 8601 duration, 5 by default, and 0 if it is not enabled.
func terminateNotice(of Properties) time.Duration {
	var profile struct {
		Terminate struct {
			Enable    bool   `json:"enable"`
			NotBefore string `json:"notBeforeTimeout"`
		} `json:"terminateNotificationProfile"`
	}
	if json.Unmarshal(of["scheduledEventsProfile"], &profile) != nil || !profile.Terminate.Enable {
		return 0
	}
	minutes := 5
	_, _ = fmt.Sscanf(profile.Terminate.NotBefore, "PT%dM", &minutes)
	return time.Duration(min(max(minutes, 5), 15)) * time.Minute
}
