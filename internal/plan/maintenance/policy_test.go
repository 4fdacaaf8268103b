package maintenance_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

func TestParsePolicies(t *testing.T) {
	policies, err := maintenance.ParsePolicies(map[string]string{"freeze": "Ignore", "Preempt": "prepare", "redeploy": "move"})
	if err != nil || policies.Of(apiv1.MaintenanceRedeploy) != maintenance.Move ||
		policies.Of(apiv1.MaintenanceFreeze) != maintenance.Ignore ||
		policies.Of(apiv1.MaintenancePreempt) != maintenance.Prepare ||
		policies.Of(apiv1.MaintenanceReboot) != maintenance.Prepare {
		t.Errorf("got %v, %v; want freeze ignored, and all others prepared", policies, err)
	}
	for name, c := range map[string]struct {
		settings map[string]string
		fault    string
	}{
		"an unknown kind":   {map[string]string{"teleport": "ignore"}, "teleport"},
		"an unknown policy": {map[string]string{"freeze": "pray"}, "pray"},
		"no policy":         {map[string]string{"freeze": ""}, "must be ignore"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := maintenance.ParsePolicies(c.settings); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %v, %v; want an error with %q", got, err, c.fault)
			}
		})
	}
}

func TestNextEvent(t *testing.T) {
	event := func(id string, kind apiv1.MaintenanceType, minutes int) apiv1.MaintenanceEvent {
		e := apiv1.MaintenanceEvent{EventID: id, Type: kind, Started: minutes == 0}
		if minutes > 0 {
			e.NotBeforeTime = &metav1.Time{Time: noon.Add(time.Duration(minutes) * time.Minute)}
		}
		return e
	}
	type events = []apiv1.MaintenanceEvent
	freeze, reboot := event("a", apiv1.MaintenanceFreeze, 1), event("b", apiv1.MaintenanceReboot, 9)
	policies := maintenance.Policies{apiv1.MaintenanceFreeze: maintenance.Ignore, apiv1.MaintenanceTerminate: maintenance.Move}
	for name, c := range map[string]struct {
		events []apiv1.MaintenanceEvent
		want   string
	}{
		"no event":                   {nil, ""},
		"an event that is ignored":   {events{freeze}, ""},
		"the earliest of the others": {events{freeze, reboot, event("c", apiv1.MaintenanceRedeploy, 5)}, "c"},
		"whatever their order":       {events{event("c", apiv1.MaintenanceRedeploy, 5), reboot}, "c"},
		"an earlier one that moves no pods": {
			events{event("d", apiv1.MaintenanceTerminate, 9), event("c", apiv1.MaintenancePreempt, 0)}, "d"},
		"the first of two that move the pods": {
			events{event("d", apiv1.MaintenanceTerminate, 5), event("e", apiv1.MaintenanceTerminate, 9)}, "d"},
		"one that has begun": {events{reboot, event("c", apiv1.MaintenancePreempt, 0)}, "c"},
		"one that moves the pods": {
			events{event("c", apiv1.MaintenancePreempt, 0), event("d", apiv1.MaintenanceTerminate, 9)}, "d",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if e := policies.Next(c.events); e != nil {
				if got = e.EventID; !strings.Contains(maintenance.Describe(e), string(e.Type)) {
					t.Errorf("the description %q does not name the kind", maintenance.Describe(e))
				}
			}
			if got != c.want {
				t.Errorf("got event %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheDescriptionSaysWhenAnEventBegins(t *testing.T) {
	at := &metav1.Time{Time: noon}
	for want, e := range map[string]*apiv1.MaintenanceEvent{
		"not before 2030-01-07T12:00:00Z": {NotBeforeTime: at},
		"has begun (event started)":       {EventID: "started", Started: true, NotBeforeTime: at},
		"has begun (event untimed)":       {EventID: "untimed"},
	} {
		if got := maintenance.Describe(e); !strings.Contains(got, want) {
			t.Errorf("got %q, want it to say %q", got, want)
		}
	}
}
