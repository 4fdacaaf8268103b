package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// LoopPrefix is how the names of the files under all loop devices of the hypervisor
// with that state folder begin, or "" if it never ran. A hypervisor that was killed
// leaves its loop devices behind.
func LoopPrefix(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "attachments.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var record struct{ ID string }
	if err := json.Unmarshal(data, &record); err != nil {
		return "", fmt.Errorf("read the hypervisor's state: %w", err)
	}
	if record.ID == "" {
		return "", errors.New("the hypervisor's state has no ID")
	}
	return "azuresim-" + record.ID + "-", nil
}
