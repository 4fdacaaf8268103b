package maintenance_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/maintenance"
)

const (
	virtualMachine = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm-a"
	instance       = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"
)

var noon = time.Date(2030, 1, 7, 12, 0, 0, 0, time.UTC)

// freeze is an event of vm-a, with the given fields in the place of the usual ones.
func freeze(fields string) string {
	event := map[string]any{
		"EventId": "C1", "EventStatus": "Scheduled", "EventType": "Freeze", "ResourceType": "VirtualMachine",
		"Resources": []string{"vm-b", "vm-a"}, "NotBefore": "Mon, 07 Jan 2030 12:00:00 GMT", "Description": "Live migration.",
		"EventSource": "Platform", "DurationInSeconds": 9,
	}
	var changed map[string]any
	if err := json.Unmarshal([]byte("{"+fields+"}"), &changed); err != nil {
		panic(err)
	}
	for field, value := range changed {
		if event[field] = value; value == nil {
			delete(event, field)
		}
	}
	raw, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func describe(events []apiv1.MaintenanceEvent) string {
	var all []string
	for _, e := range events {
		text := e.EventID + " " + string(e.Type)
		if e.NotBeforeTime != nil {
			text += " not before " + e.NotBeforeTime.UTC().Format(time.TimeOnly)
		}
		if e.Started {
			text += " started"
		}
		if e.DurationSeconds != nil {
			text += fmt.Sprintf(" %ds", *e.DurationSeconds)
		}
		all = append(all, text+" "+e.Source)
	}
	return strings.Join(all, "; ")
}

func TestEventsOfTheDocument(t *testing.T) {
	longestID, longest := strings.Repeat("x", 128), strings.Repeat("x", 32)
	const (
		at        = "C1 Freeze not before 12:00:00 "
		scheduled = at + "9s Platform"
		started   = "C1 Freeze started 9s Platform"
	)
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"no events":                     {nil, ""},
		"an event of the VM":            {[]string{freeze(``)}, scheduled},
		"the name in another spelling":  {[]string{freeze(`"Resources":["VM-A"]`)}, scheduled},
		"an event of other VMs":         {[]string{freeze(`"Resources":["vm-b","vm-ab","vm-a_0"]`)}, ""},
		"an event without VMs":          {[]string{freeze(`"Resources":[]`)}, ""},
		"an event that has begun":       {[]string{freeze(`"EventStatus":"Started","NotBefore":""`)}, started},
		"a begun event that has a time": {[]string{freeze(`"EventStatus":"Started"`)}, started},
		"a postponed event": {[]string{freeze(`"NotBefore":"Mon, 07 Jan 2030 13:30:00 GMT"`)},
			"C1 Freeze not before 13:30:00 9s Platform"},
		"a time in the past":             {[]string{freeze(`"NotBefore":"Mon, 01 Jan 2001 12:00:00 GMT"`)}, scheduled},
		"the time of an earlier version": {[]string{freeze(`"NotBefore":"2030-01-07T12:00:00Z"`)}, scheduled},
		"a time that is none":            {[]string{freeze(`"NotBefore":"soon"`)}, ""},
		"no time":                        {[]string{freeze(`"NotBefore":null`)}, ""},
		"an unknown duration":            {[]string{freeze(`"DurationInSeconds":-1`)}, at + "Platform"},
		"no duration":                    {[]string{freeze(`"DurationInSeconds":null`)}, at + "Platform"},
		"a duration of years":            {[]string{freeze(`"DurationInSeconds":9000000000`)}, at + "86400s Platform"},
		"an unknown kind":                {[]string{freeze(`"EventType":"Teleport"`)}, ""},
		"an unknown status":              {[]string{freeze(`"EventStatus":"Pondered"`)}, scheduled},
		"no ID":                          {[]string{freeze(`"EventId":""`)}, ""},
		"the longest ID":                 {[]string{freeze(`"EventId":"` + longestID + `"`)}, longestID + scheduled[2:]},
		"the longest source":             {[]string{freeze(`"EventSource":"` + longest + `"`)}, at + "9s " + longest},
		"a duration of zero":             {[]string{freeze(`"DurationInSeconds":0`)}, at + "0s Platform"},
		"an ID without end":              {[]string{freeze(`"EventId":"` + strings.Repeat("x", 200) + `"`)}, ""},
		"a source without end":           {[]string{freeze(`"EventSource":"` + strings.Repeat("x", 200) + `"`)}, at + "9s "},
		"an event that is there twice":   {[]string{freeze(``), freeze(`"EventType":"Reboot"`)}, scheduled},
		"all kinds, ordered by their IDs": {[]string{
			freeze(`"EventId":"5","EventType":"Terminate"`), freeze(`"EventId":"4","EventType":"Preempt"`),
			freeze(`"EventId":"3","EventType":"Redeploy"`), freeze(`"EventId":"2","EventType":"Reboot","EventSource":"User"`),
			freeze(`"EventId":"1"`)},
			"1 Freeze not before 12:00:00 9s Platform; 2 Reboot not before 12:00:00 9s User; " +
				"3 Redeploy not before 12:00:00 9s Platform; 4 Preempt not before 12:00:00 9s Platform; " +
				"5 Terminate not before 12:00:00 9s Platform"},
	} {
		t.Run(name, func(t *testing.T) {
			var document maintenance.Document
			raw := `{"DocumentIncarnation":2,"Events":[` + strings.Join(c.events, ",") + `]}`
			if err := json.Unmarshal([]byte(raw), &document); err != nil {
				t.Fatal(err)
			}
			if got := describe(maintenance.Events(document, virtualMachine)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEventsAreBounded(t *testing.T) {
	var document maintenance.Document
	for i := range 100 {
		document.Events = append(document.Events, maintenance.DocumentEvent{
			EventID: fmt.Sprintf("%02d", 99-i), EventType: "Freeze", EventStatus: "Started", Resources: []string{"vm-a"},
		})
	}
	got := maintenance.Events(document, virtualMachine)
	if len(got) != 16 || got[0].EventID != "00" {
		t.Errorf("got %d events from %q on, want 16 from 00 on", len(got), describe(got))
	}
}

func TestVMName(t *testing.T) {
	for id, want := range map[string]string{
		virtualMachine: "vm-a",
		instance:       "pool_3",
		"virtualMachineScaleSets/pool/virtualMachines/3": "pool_3",
		"virtualMachineScaleSets/pool/networks/3":        "3",
		strings.ToLower(instance):                        "pool_3",
		"/virtualMachines/flexible-x1":                   "flexible-x1",
		"":                                               "",
	} {
		if got := maintenance.VMName(id); got != want {
			t.Errorf("VMName(%q): got %q, want %q", id, got, want)
		}
	}
}

func TestEventOfTheNodesCondition(t *testing.T) {
	const (
		noonGMT = "Mon, 07 Jan 2030 12:00:00 GMT"
		help    = ". For more information, see https://aka.ms/x. EventId: C1"
		unnamed = "VMEventScheduled 2030-01-07T12:00:00Z Freeze "
	)
	for name, c := range map[string]struct {
		message string
		want    string
		// status and kind of the condition; True and VMEventScheduled if they are empty.
		status corev1.ConditionStatus
		kind   corev1.NodeConditionType
	}{
		"a freeze":                {message: "Freeze Scheduled: " + noonGMT + help, want: "C1 Freeze not before 12:00:00 "},
		"a freeze without an ID":  {message: "Freeze Scheduled: " + noonGMT, want: unnamed + "not before 12:00:00 "},
		"an ID that is blank":     {message: "Freeze Scheduled: EventId:  ", want: unnamed + "started "},
		"an event that has begun": {message: "Preempt Scheduled: " + help, want: "C1 Preempt started "},
		"a time that is none":     {message: "Freeze Scheduled: soon GMT" + help},
		"an unknown kind":         {message: "Teleport Scheduled: " + noonGMT},
		"a kind alone":            {message: "Freeze"},
		"another message":         {message: "IMDS unavailable"},
		"no message":              {},
		"no event":                {message: "VM has no scheduled event", status: corev1.ConditionFalse},
		"an event that is over":   {message: "Freeze Scheduled: " + noonGMT, status: corev1.ConditionFalse},
		"another condition":       {message: "Freeze Scheduled: " + noonGMT, kind: corev1.NodeReady},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
				Type:               cmp.Or(c.kind, maintenance.NodeCondition),
				Status:             cmp.Or(c.status, corev1.ConditionTrue),
				Message:            c.message,
				LastTransitionTime: metav1.NewTime(noon),
			}}}}
			if got := describe(maintenance.FromNode(node)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The node plug-in reads Azure's document, which says more than the Node's condition.
func TestAnnouncedEvents(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: maintenance.NodeCondition,
		Status: corev1.ConditionTrue, Message: "Freeze Scheduled. EventId: condition"}}}}
	reported := &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{Maintenance: &apiv1.NodeMaintenance{
		Events: []apiv1.MaintenanceEvent{{EventID: "report"}}}}}
	for name, c := range map[string]struct {
		report *apiv1.AzDriverNode
		node   *corev1.Node
		want   string
	}{
		"the report":            {reported, node, "report"},
		"no report of events":   {&apiv1.AzDriverNode{}, node, "condition"},
		"neither and no Node":   {&apiv1.AzDriverNode{}, nil, ""},
		"a report without Node": {reported, nil, "report"},
	} {
		got := ""
		for _, e := range maintenance.Announced(c.report, c.node) {
			got += e.EventID
		}
		if got != c.want {
			t.Errorf("%s: got event %q, want %q", name, got, c.want)
		}
	}
}

// FuzzEvents reads any document. What is taken fits into an AzDriverNode, and does not depend on the
// order of the events.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		`{"DocumentIncarnation":1,"Events":[` + freeze(``) + `,` + freeze(`"EventId":"C2","DurationInSeconds":-1`) + `]}`,
		`{"Events":[` + freeze(`"EventStatus":"Started","NotBefore":""`) + `]}`,
		`{"Events":null}`, `{"Events":[null]}`, `{"Events":{}}`, `[]`, `null`, ``, `<html>`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var document maintenance.Document
		if json.Unmarshal(raw, &document) != nil {
			return
		}
		events := maintenance.Events(document, virtualMachine)
		if len(events) > 16 {
			t.Errorf("got %d events", len(events))
		}
		for _, e := range events {
			if e.EventID == "" || e.Type == "" || len(e.Source) > 32 || e.Started != (e.NotBeforeTime == nil) ||
				e.DurationSeconds != nil && *e.DurationSeconds < 0 {
				t.Errorf("taken: %+v", e)
			}
		}
		again := maintenance.Events(document, strings.ToUpper(virtualMachine))
		if !apiequality.Semantic.DeepEqual(events, again) {
			t.Errorf("the spelling of the VM matters: got %+v, want %+v", again, events)
		}
	})
}
