package volumeparams

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
)

// The performance profiles of a device.
const (
	// profileNone does not change the kernel's settings.
	profileNone = "none"
	// ProfileBasic makes the node compute the settings from the disk's IOPS and throughput.
	ProfileBasic = "basic"
	// ProfileAdvanced makes the node write the settings that the parameters name.
	ProfileAdvanced = "advanced"
)

const (
	profileKey = "perfProfile"
	// deviceSettingPrefix starts the names of an open set of parameters; the rest of the name is a
	// path.
	deviceSettingPrefix = "device-setting/"
	allowedSettingPath  = "a path below /sys/block/<device>/, as in queue/scheduler, without . and .."
)

// Tuning has the kernel's settings of a device, which the node writes.
type Tuning struct {
	// Profile is one of the profiles; "" for none.
	Profile string
	// Settings in the order of their paths. They have an effect only with ProfileAdvanced.
	Settings []DeviceSetting
}

// DeviceSetting is a value for a file below /sys/block/<device>/.
type DeviceSetting struct {
	// Path below that directory, checked by CheckSettingPath.
	Path  string
	Value string
}

// ParseTuning reads the performance profile and the device settings among the attributes of a
// volume, and nothing else. The error is an InvalidArgument that lists every fault.
func ParseTuning(attributes map[string]string) (Tuning, error) {
	var tuning Tuning
	faults := tuning.addAll(attributes)
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		value := attributes[key]
		if !strings.EqualFold(key, profileKey) || value == "" {
			continue
		}
		tuning.Profile = strings.ToLower(value)
		if !paramtable.AnyCase(profiles)(value) {
			faults = append(faults, paramtable.Fault(key, value, anyCaseOf(profiles)))
		}
	}
	return tuning, paramtable.Invalid(append(faults, tuning.contradictions()...))
}

func isDeviceSetting(key string) bool {
	return len(key) >= len(deviceSettingPrefix) && strings.EqualFold(key[:len(deviceSettingPrefix)], deviceSettingPrefix)
}

// addAll adds the settings among raw, and returns the faults.
func (t *Tuning) addAll(raw map[string]string) (faults []string) {
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		if !isDeviceSetting(key) {
			continue
		}
		setting := DeviceSetting{Path: key[len(deviceSettingPrefix):], Value: raw[key]}
		switch {
		case !CheckSettingPath(setting.Path):
			faults = append(faults, paramtable.Fault(key, setting.Value,
				"the name "+deviceSettingPrefix+" and "+allowedSettingPath))
		case setting.Value == "" || strings.ContainsAny(setting.Value, "\x00\n"):
			faults = append(faults, paramtable.Fault(key, setting.Value, "one line that is not empty"))
		default:
			t.Settings = append(t.Settings, setting)
		}
	}
	return faults
}

// withoutEffect names the settings that the profile does not use.
func (t *Tuning) withoutEffect() (names []string) {
	if t.Profile == ProfileAdvanced {
		return nil
	}
	for _, setting := range t.Settings {
		names = append(names, deviceSettingPrefix+setting.Path)
	}
	return names
}

// CheckSettingPath reports whether a relative path, as it is written, remains below its directory.
func CheckSettingPath(p string) bool {
	return p != "" && p != "." && !strings.HasPrefix(p, "/") && path.Clean(p) == p && p != ".." && !strings.HasPrefix(p, "../") &&
		!strings.ContainsRune(p, 0)
}

func (t *Tuning) contradictions() []string {
	if t.Profile == ProfileAdvanced && len(t.Settings) == 0 {
		return []string{paramtable.Fault(profileKey, t.Profile, "only with at least one "+deviceSettingPrefix+"<path>")}
	}
	return nil
}
