package imds

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
)

// DiskAt returns the resource ID of the data disk that the instance metadata service has at a LUN
// of this VM, or "" if it has none there. The service's data may be out of date, so a disk that was
// attached or detached a moment ago may be missing or still be there.
func DiskAt(ctx context.Context, endpoint string, lun int32) (string, error) {
	body, err := getOnce(ctx, endpoint, "/metadata/instance/compute/storageProfile/dataDisks")
	if err != nil {
		return "", err
	}
	return diskAt(body, lun)
}

// diskAt reads the list of data disks. Every value in it is a string, the LUN too.
func diskAt(body []byte, lun int32) (string, error) {
	var disks []struct {
		LUN         string `json:"lun"`
		ManagedDisk struct {
			ID string `json:"id"`
		} `json:"managedDisk"`
	}
	if err := json.Unmarshal(body, &disks); err != nil {
		return "", fmt.Errorf("parse instance metadata: %w", err)
	}
	for _, disk := range disks {
		if disk.LUN == strconv.Itoa(int(lun)) {
			return disk.ManagedDisk.ID, nil
		}
	}
	return "", nil
}
