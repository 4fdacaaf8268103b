package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/azure"
	"github.com/azuredisk-csi/azuredisk/playground/host"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// Down takes the playground down, if one is up, and leaves nothing of it behind but
// its logs. It is idempotent and also cleans up after a supervisor that was killed.
func Down(ctx context.Context, dir state.Dir, progress Progress) error {
	id, alive, err := dir.Supervisor()
	if err != nil {
		return err
	}
	if alive {
		progress("stopping the playground (process %d)", id.PID)
		// The record is that of the first process of the playground's PID namespace: when
		// it has ended, so has every other process of the playground.
		if err := id.End(ctx, time.Minute); err != nil {
			return err
		}
	}
	if err := Clean(dir); err != nil {
		return err
	}
	progress("the playground is down; its logs are in %s", dir.Logs())
	return nil
}

// Clean removes what a playground whose processes are gone has left: loop devices, control groups,
// changed kernel settings unless another playground needs them, files. Its mounts and network
// namespaces went with its processes.
func Clean(dir state.Dir) error {
	prefix, err := azure.LoopPrefix(dir.Azure())
	if err != nil {
		return err
	}
	if err := host.DetachLoopDevices(string(dir), prefix); err != nil {
		return fmt.Errorf("detach loop devices: %w", err)
	}
	cgroups, err := host.DetectCgroups(string(dir))
	if err != nil {
		return err
	}
	if err := errors.Join(cgroups.Remove(""), host.Machine().Restore()); err != nil {
		return err
	}
	return dir.Clear()
}
