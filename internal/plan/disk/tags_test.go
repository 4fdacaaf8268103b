package disk_test

import (
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/disk"
)

func TestFollowedTagsAreThoseOfTheLabelsAndOthersStay(t *testing.T) {
	t.Parallel()
	type tags map[string]string
	for name, test := range map[string]struct{ has, values, want tags }{
		"the same":               {tags{"team": "a", "x": "1"}, tags{"team": "a"}, tags{"team": "a", "x": "1"}},
		"another value":          {tags{"team": "a", "x": "1"}, tags{"team": "b"}, tags{"team": "b", "x": "1"}},
		"missing, and no more":   {tags{"x": "1"}, tags{"team": "b"}, tags{"team": "b", "x": "1"}},
		"missing now":            {tags{"team": "a", "x": "1"}, nil, tags{"x": "1"}},
		"under another spelling": {tags{"Team": "a"}, tags{"team": "b"}, tags{"team": "b"}},
	} {
		v := &apiv1.AzVolume{}
		v.Spec.Disk.Tags, v.Spec.Disk.FollowedTags = test.has, map[string]string{"team": "${pvc.labels.team}"}
		before := maps.Clone(test.has)
		if got := disk.Retag(v, test.values); !maps.Equal(got, test.want) || !maps.Equal(v.Spec.Disk.Tags, before) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestARefusedChangeOfTagsIsTriedAgainAfterAnHour(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]time.Duration{
		0: time.Hour, 20 * time.Minute: 40 * time.Minute, time.Hour: 0, 2 * time.Hour: 0, -time.Minute: 0,
	} {
		v := &apiv1.AzVolume{}
		if got := disk.RetagAfter(v, now); got != 0 {
			t.Errorf("without a refusal: got %s, want no wait", got)
		}
		v.Status.RefusedSettings = &apiv1.Refusal{Error: apiv1.Error{Time: metav1.NewTime(now.Add(-ago))}}
		if got := disk.RetagAfter(v, now); got != want {
			t.Errorf("refused %s ago: got %s, want %s", ago, got, want)
		}
	}
}
