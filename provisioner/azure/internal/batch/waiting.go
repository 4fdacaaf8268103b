package batch

import (
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// Waiting implements provisioner.Attachments.
func (e *Engine) Waiting(vmID, diskID string) provisioner.Waiting {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.last[operation.Key(vmID)+"|"+operation.Key(diskID)]
	if !ok || r.token != "" {
		return provisioner.Waiting{}
	}
	v := e.queues.vm(r.vm)
	b := v.line(r.kind == operation.ForceDetach).batch
	if b == nil {
		b = v.forced.batch // ordinary requests wait for it
	}
	switch {
	case b == nil: // a call that an earlier process made, or one for another VM that has the shared disk
		return provisioner.Waiting{For: provisioner.WaitingForUpdate, Since: r.arrived}
	case r.state == inFlight:
		return provisioner.Waiting{For: provisioner.WaitingForAnswer, Since: b.filled}
	case len(b.requests) > 0:
		usual := Update{Changes: changes(b.requests)}.Usual()
		return provisioner.Waiting{
			For:   provisioner.WaitingForUpdate,
			Since: b.filled,
			Until: b.filled.Add(usual.To),
		}
	case b.quotaAt.After(e.Clock.Now()):
		return provisioner.Waiting{
			For:   provisioner.WaitingForQuota,
			Since: b.began,
			Until: b.quotaAt,
		}
	default:
		return provisioner.Waiting{For: provisioner.WaitingForMore, Since: b.began}
	}
}
