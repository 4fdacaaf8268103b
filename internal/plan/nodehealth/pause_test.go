package nodehealth_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/nodehealth"
)

func TestWhichEventsPauseAVM(t *testing.T) {
	noon, seen := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 11, 0, 0, 0, time.UTC)
	at, nine := metav1.NewTime(noon), int32(9)
	for name, c := range map[string]struct {
		event apiv1.MaintenanceEvent
		from  time.Time
		lasts time.Duration
	}{
		"a freeze pauses it, from the announced time on": {apiv1.MaintenanceEvent{
			Type: apiv1.MaintenanceFreeze, NotBeforeTime: &at,
			DurationSeconds: &nine}, noon, 9 * time.Second},
		"a freeze that has begun, from when that was seen": {apiv1.MaintenanceEvent{Type: apiv1.MaintenanceFreeze, Started: true,
			NotBeforeTime: &at, DurationSeconds: &nine}, seen, 9 * time.Second},
		"an unknown duration is the longest that Azure documents": {apiv1.MaintenanceEvent{Type: apiv1.MaintenanceFreeze,
			NotBeforeTime: &at}, noon, 30 * time.Second},
		"a reboot does not pause it":    {event: apiv1.MaintenanceEvent{Type: apiv1.MaintenanceReboot, NotBeforeTime: &at}},
		"a redeploy does not pause it":  {event: apiv1.MaintenanceEvent{Type: apiv1.MaintenanceRedeploy, NotBeforeTime: &at}},
		"a preemption does not":         {event: apiv1.MaintenanceEvent{Type: apiv1.MaintenancePreempt, Started: true}},
		"a termination does not either": {event: apiv1.MaintenanceEvent{Type: apiv1.MaintenanceTerminate, Started: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.event.EventID = "e"
			got := nodehealth.AnnouncedPauses([]apiv1.MaintenanceEvent{c.event}, func(string) time.Time { return seen })
			if c.lasts == 0 {
				if len(got) > 0 {
					t.Errorf("got %+v, want no pause", got)
				}
				return
			}
			if want := (nodehealth.AnnouncedPause{Event: "e", From: c.from, Lasts: c.lasts}); len(got) != 1 || got[0] != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestExcuseOfASilence(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	second := func(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Second))) }
	freeze := func(lasts float64) nodehealth.AnnouncedPause {
		return nodehealth.AnnouncedPause{Event: "e", From: noon, Lasts: time.Duration(lasts * float64(time.Second))}
	}
	freezes := func(lasts ...float64) (all []nodehealth.AnnouncedPause) {
		for _, l := range lasts {
			all = append(all, freeze(l))
		}
		return all
	}
	type silences = []nodehealth.ExcusedSilence
	silent := func(event string, from, to float64) nodehealth.ExcusedSilence {
		return nodehealth.ExcusedSilence{Event: event, From: second(from), To: second(to)}
	}
	const hour = 3600
	for name, c := range map[string]struct {
		announced []nodehealth.AnnouncedPause
		before    silences
		silent    float64
		// until is when the excuse ends; 0 for none.
		until   float64
		refused bool
	}{
		"nothing is announced": {nil, nil, 1, 0, false},
		"a silence in the pause is excused for its duration and a margin":  {freezes(10), nil, 1, 16, false},
		"one before the pause is not":                                      {freezes(10), nil, -6, 0, false},
		"one just before it is, as clocks differ, and counts from then on": {freezes(10), nil, -4, 15, false},
		"a pause may begin late":                                           {freezes(10), nil, 1700, 1715, false},
		"an announcement does not last for ever":                           {freezes(10), nil, 1801, 0, false},
		"an announcement of an earlier day does not excuse a new outage":   {freezes(10), nil, 24 * hour, 0, false},
		"a pause of no time has the margin":                                {freezes(0), nil, 1, 6, false},
		"a long pause is excused up to the limit":                          {freezes(3600), nil, 1, 61, false},
		"of several events the latest end counts":                          {freezes(10, 20, 5), nil, 1, 26, false},
		"a second silence of one event has what the first has left": {freezes(50), silences{silent("e", 1, 51)}, 60, 70,
			false},
		"an event whose limit is exhausted excuses nothing": {freezes(50), silences{silent("e", 1, 61)}, 70, 0, true},
		"other events of the hour count": {freezes(50),
			silences{silent("a", -100, -40), silent("b", -39, 0)}, 1, 22, false},
		"the limit of an hour": {freezes(50),
			silences{silent("a", -200, -140), silent("b", -100, -40)}, 1, 0, true},
		"silences of the hour before do not count": {freezes(50),
			silences{silent("a", -hour-100, -hour-40), silent("b", -hour-30, -hour-10)}, 1, 56, false},
		"a silence that ended before it began counts for nothing": {freezes(50), silences{silent("e", 100, 1)}, 1, 56,
			false},
		"an exhausted event does not matter where another one excuses": {
			append(freezes(10), nodehealth.AnnouncedPause{Event: "a", From: noon, Lasts: time.Hour}),
			silences{silent("a", -70, -10)}, 1, 16, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := nodehealth.DefaultPauseLimits.Excuse(c.announced, c.before, second(c.silent))
			want := time.Time{}
			if c.until != 0 {
				want = second(c.until)
			}
			if !got.Until.Equal(want) || got.Refused != c.refused {
				t.Errorf("got until %s, refused %t; want %s, %t", got.Until, got.Refused, want, c.refused)
			}
		})
	}
}

// Whatever a node announces, and however often it is silent and back, its announcements excuse no
// more than the limits allow.
func TestNoAnnouncementsExcuseMoreThanTheLimit(t *testing.T) {
	limits := nodehealth.DefaultPauseLimits
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	var excused []nodehealth.ExcusedSilence
	for i := range 500 {
		announced := []nodehealth.AnnouncedPause{{Event: string(rune('a' + i)), From: now, Lasts: time.Hour}}
		e := limits.Excuse(announced, excused, now)
		if e.Until.IsZero() {
			now = now.Add(7 * time.Second)
			continue
		}
		excused = append(excused, e.Ended(e.Until))
		now = e.Until.Add(time.Second)
	}
	for _, from := range excused {
		var sum time.Duration
		for _, s := range excused {
			if !s.From.Before(from.From) && s.To.Sub(from.From) <= time.Hour {
				sum += s.To.Sub(s.From)
			}
		}
		if sum > limits.PerHour {
			t.Errorf("from %s on: got %s of excused silence in an hour, want at most %s", from.From, sum, limits.PerHour)
		}
	}
	if len(excused) < 2 {
		t.Errorf("got %d excused silences, want some", len(excused))
	}
}

func TestASilenceIsExcusedUntilTheEndOfItsExcuse(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	excuse := nodehealth.Excuse{
		AnnouncedPause: nodehealth.AnnouncedPause{Event: "e"},
		SilentFrom:     noon,
		Until:          noon.Add(15 * time.Second),
	}
	for after, want := range map[time.Duration]time.Duration{10 * time.Second: 10 * time.Second, time.Hour: 15 * time.Second} {
		got := excuse.Ended(noon.Add(after))
		if got != (nodehealth.ExcusedSilence{Event: "e", From: noon, To: noon.Add(want)}) {
			t.Errorf("ended after %s: got %+v, want %s of silence", after, got, want)
		}
		if got.Recent(got.To.Add(time.Hour)) || !got.Recent(got.To.Add(time.Hour-1)) {
			t.Errorf("ended after %s: want it to count for the next hour", after)
		}
	}
}
