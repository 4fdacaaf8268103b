package disk

import (
	"maps"
	"slices"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// retagRetry is how long after a refusal of settings the tags that follow labels are changed again.
// Until then they differ from the labels: the refused value is removed from the spec.
const retagRetry = time.Hour

// Retag returns the tags of a disk whose followed tags have the values. A followed tag without a
// value is removed.
func Retag(v *apiv1.AzVolume, values map[string]string) map[string]string {
	followed := slices.Collect(maps.Keys(v.Spec.Disk.FollowedTags))
	tags := map[string]string{}
	for name, value := range v.Spec.Disk.Tags {
		if _, kept := values[name]; kept || !provisioner.HasTag(followed, name) {
			tags[name] = value
		}
	}
	for name, value := range values {
		provisioner.SetTag(tags, name, value)
	}
	return tags
}

// RetagAfter returns how long the change of tags has to wait, because Azure has refused a change of
// the disk's settings.
func RetagAfter(v *apiv1.AzVolume, now time.Time) time.Duration {
	if v.Status.RefusedSettings == nil {
		return 0
	}
	left := v.Status.RefusedSettings.Time.Add(retagRetry).Sub(now)
	if left > retagRetry { // the time of another clock
		return 0
	}
	return max(left, 0)
}
