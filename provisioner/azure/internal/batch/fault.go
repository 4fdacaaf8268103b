package batch

import (
	"errors"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// withoutFaulty reads the disks and ends the attaches that cannot succeed as things are. It returns
// the others, and whether there was any.
func (r *run) withoutFaulty(requests []*request, vm VM, err error) (rest []*request, found bool) {
	reasons := make([]*provisioner.Error, len(requests))
	eachAtOnce(requests, func(i int, q *request) {
		if !q.attaches() {
			return
		}
		disk, err := r.engine.Platform.Disk(r.engine.ctx, q.params.DiskID)
		switch {
		case errors.Is(err, provisioner.NotFound):
			reasons[i] = provisioner.Errorf(provisioner.NotFound, "attach disk %s: it does not exist", q.params.DiskID)
		case err == nil:
			reasons[i] = q.forbiddenBy(disk, vm)
		}
	})
	for i, q := range requests {
		if reasons[i] == nil {
			rest = append(rest, q)
			continue
		}
		if len(requests) == 1 {
			// Azure's message can only be about this one.
			reasons[i].Message += " (" + err.Error() + ")"
			reasons[i].Code, reasons[i].RetryAfter, reasons[i].Err = operation.CodeOf(err), provisioner.RetryAfter(err), err
		} else {
			_, ids := provisioner.CutRequestIDs(err.Error())
			reasons[i].Message += ids
		}
		r.engine.finish(reasons[i], q)
	}
	return rest, len(rest) < len(requests)
}

// forbiddenBy returns why an attach cannot succeed with the disk and the VM as they are; nil if no
// reason is known.
func (r *request) forbiddenBy(d Disk, vm VM) *provisioner.Error {
	var others []string
	for _, id := range d.AttachedTo {
		if operation.Key(id) != r.vm {
			others = append(others, id)
		}
	}
	reason := func(kind provisioner.Kind, format string, args ...any) *provisioner.Error {
		return provisioner.Errorf(kind, "attach disk %s to VM %s: "+format,
			append([]any{r.params.DiskID, r.params.VMID}, args...)...)
	}
	switch {
	case d.State == operation.StateDeleting:
		return reason(provisioner.NotFound, "the disk is being deleted")
	case !strings.EqualFold(d.Location, vm.Location):
		return reason(provisioner.InvalidArgument, "the disk is in region %s, and the VM in %s", d.Location, vm.Location)
	case !strings.HasSuffix(d.SKUName, "_ZRS") && d.Zone != vm.Zone:
		return reason(provisioner.InvalidArgument, "the disk is in zone %q, and the VM in %q", d.Zone, vm.Zone)
	case d.MaxShares > 1 && r.params.CachingMode != "" && r.params.CachingMode != "None":
		return reason(provisioner.InvalidArgument, "the disk is shared, and cannot be cached as %s", r.params.CachingMode)
	case d.MaxShares <= 1 && len(others) > 0:
		return reason(provisioner.FailedPrecondition, "the disk is attached to %s", others[0])
	case len(others) >= int(d.MaxShares):
		return reason(provisioner.InsufficientCapacity, "all %d shares of the disk are in use", d.MaxShares)
	case d.State == operation.StateCreating || d.State == operation.StateUpdating:
		return reason(provisioner.Conflict, "the disk is being changed (%s)", d.State)
	}
	return nil
}

// ambiguous narrows an error whose code has several meanings, when neither the disk nor the VM
// shows the reason. Azure refuses a shared disk with a free share only because it is being attached
// to another VM.
func ambiguous(r *request, err error) error {
	if operation.CodeOf(err) != operation.CodeConflictingUserInput || !r.params.Shared {
		return err
	}
	return &provisioner.Error{
		Kind:    provisioner.Conflict,
		Code:    operation.CodeConflictingUserInput,
		Message: err.Error(),
		Err:     err,
	}
}
