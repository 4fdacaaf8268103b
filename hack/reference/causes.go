package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/cli/checks"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
)

const troubleshootingHead = `# Troubleshooting

Ask why something is not ready:

` + "```" + `
kubectl azuredisk why pod NAME -n NAMESPACE
` + "```" + `

The answer names one of the causes below, what proves it, and what to do ([Explain](guides/explain.md)). This page
is generated from the table from which the driver takes the reasons of conditions and events.

## By event

Find the reason of an event (the column REASON of ` + "`kubectl get events`" + `) or of a condition, or the error code of
Azure, as a heading of this page or in this list of those that have other causes:

`

// troubleshooting returns the page on troubleshooting.
func troubleshooting() string {
	var b strings.Builder
	b.WriteString(troubleshootingHead)
	seen := map[string][]string{}
	for _, c := range cause.Table() {
		texts := c.Seen
		if len(c.On) > 0 {
			texts = append([]string{c.ID}, texts...)
		}
		for _, text := range texts {
			if c.Group != "" {
				seen[text] = append(seen[text], fmt.Sprintf("[%s](#%s)", c.ID, strings.ToLower(c.ID)))
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(seen)) {
		if len(seen[text]) == 1 && strings.HasPrefix(seen[text][0], "["+text+"]") {
			continue
		}
		wrap(&b, "* ", "`"+text+"`: "+strings.Join(seen[text], ", "))
	}
	for _, group := range cause.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", group)
		for _, c := range cause.Table() {
			if c.Group == group {
				explained(&b, c)
			}
		}
	}
	return b.String()
}

// explained writes a cause of the page on troubleshooting.
func explained(b *strings.Builder, c cause.Cause) {
	fmt.Fprintf(b, "\n### %s\n\n", c.ID)
	wrap(b, "", c.Means)
	b.WriteString("\n")
	next := fmt.Sprintf("**What to do** (exit code %d): %s.", c.Outcome.ExitCode(), c.Next)
	switch {
	case c.Outcome == cause.Healthy && c.Next == "nothing":
		next = "Nothing is to be done (exit code 0)."
	case strings.HasPrefix(c.Next, "nothing: it ends by itself"):
		next = "**Wait** (exit code 1): it ends by itself" + strings.TrimPrefix(c.Next, "nothing: it ends by itself") + "."
	}
	if c.Usually > 0 {
		next += fmt.Sprintf(" It usually takes less than %s.", spoken(c.Usually))
	}
	wrap(b, "", next)
}

func spoken(d time.Duration) string {
	switch {
	case d == time.Minute:
		return "a minute"
	case d%time.Minute == 0:
		return fmt.Sprintf("%d minutes", int(d.Minutes()))
	}
	return fmt.Sprintf("%d seconds", int(d.Seconds()))
}

const reasonsHead = `# Reasons of conditions and events

Conditions, events and log lines of the driver share one set of reasons. [Conditions](conditions.md) has the types of
conditions. Find the reasons with:

` + "```" + `
kubectl describe azv,azva,azdn -n azure-disk-csi
kubectl get events -A --field-selector reason=FailoverStarted
` + "```" + `

The causes of each object are links to what to do about them. The other reasons report what happened. This page
is generated from the same table. [Volume health](../guides/shared-volumes.md#volume-health) has its own reasons.

A failure that Azure answered ends with the ID by which Microsoft's support finds the request, in conditions, events,
logs and traces: ` + "`(correlation ID …)`" + ` of a refusal, and
` + "`(operation ID …)`" + ` of an operation that failed after Azure had accepted it. A condition has the ID of the last
answer. An event has that of the first one within ten minutes, so that repetitions are counted in one event.
`

// objectNotes follow the titles of the page on reasons.
var objectNotes = map[cause.Object]string{
	cause.OnNode: "[The life of a node](../guides/node-lifecycle.md#the-registration-is-lost) explains the registration, and " +
		"[Maintenance](../guides/maintenance.md) what the driver prepares for.",
	cause.OnFailover: "[When a node dies](../guides/failover.md) has the steps. The causes for which a pod is not moved are also the " +
		"label `reason` of `azuredisk_failover_held_back_total`. Claims get these events, too ([Events of " +
		"claims](../guides/claim-events.md)).",
	cause.OnPod: "The text of `FilesystemMismatch`, `ReservedElsewhere`, `UsedOutsideCluster` and `WriteRefused` begins with the " +
		"reason, in events such as `FailedMount` and `FailedAttachVolume`.",
}

// reasons returns the page on the reasons of conditions and events.
func reasons() string {
	var b strings.Builder
	b.WriteString(reasonsHead)
	for _, object := range cause.Objects() {
		fmt.Fprintf(&b, "\n## %s\n\n", object)
		if note := objectNotes[object]; note != "" {
			wrap(&b, "", note)
			b.WriteString("\n")
		}
		var causes, reports []string
		for _, c := range cause.Table() {
			switch {
			case !slices.Contains(c.On, object):
			case c.Group != "":
				causes = append(causes, fmt.Sprintf("[`%s`](../troubleshooting.md#%s)", c.ID, strings.ToLower(c.ID)))
			default:
				reports = append(reports, "`"+c.ID+"`: "+c.Means)
			}
		}
		if len(causes) > 0 {
			wrap(&b, "", "Causes: "+strings.Join(causes, ", ")+".")
		}
		if len(causes) > 0 && len(reports) > 0 {
			b.WriteString("\n")
		}
		for _, report := range reports {
			wrap(&b, "* ", report)
		}
	}
	return b.String()
}

const conditionsHead = `# Conditions

The conditions of the custom resources. Wait for one with:

` + "```" + `
kubectl wait azdrivernodes --all -n azure-disk-csi --for=condition=Ready --timeout=3m
` + "```" + `

Each condition is there from the first visit of its writer: on an AzVolume when the disk exists, on an
AzVolumeAttachment and an AzDriverNode from the first write of the status. True is the healthy status of all but
` + "`GuardsFencedNodes`" + ` and ` + "`Paused`" + `, which inform: nothing is wrong with either status.

The conditions of an AzVolume and of an AzVolumeAttachment have an ` + "`observedGeneration`" + `. Those of an AzDriverNode
have none: they speak of the node, and each request to the node changes the generation of the object.

More types, reasons and statuses may be added. [Reasons](reasons.md) says what each reason means. This page is
generated from a table in internal/plan/cause.
`

// conditionsPage returns the page on the conditions.
func conditionsPage() string {
	var b strings.Builder
	b.WriteString(conditionsHead)
	kind := ""
	for _, c := range cause.Conditions() {
		if c.Kind != kind {
			kind = c.Kind
			fmt.Fprintf(&b, "\n## %s\n", kind)
		}
		fmt.Fprintf(&b, "\n### %s of %s\n\nWritten by the %s.\n\n", c.Type, c.Kind, c.Writer)
		for _, m := range []struct {
			status string
			cause.Meaning
		}{{"True", c.True}, {"False", c.False}, {"Unknown", c.Unknown}} {
			if m.Text == "" {
				continue
			}
			text := fmt.Sprintf("**%s**: %s Reasons: `%s`", m.status, m.Text, strings.Join(m.Reasons, "`, `"))
			if m.Open {
				text += ", or the reason of the holder's condition or Azure's refusal"
			}
			wrap(&b, "* ", text+".")
		}
	}
	return b.String()
}

const checksHead = `# Checks

What ` + "`kubectl azuredisk doctor`" + ` and ` + "`kubectl azuredisk preflight`" + ` check, and what to do if a check fails.
[Explain](../guides/explain.md#check-an-installation) shows how to use them. This page is generated from the lists by
which the commands decide.
`

// checksPage returns the page on the checks.
func checksPage() string {
	var b strings.Builder
	b.WriteString(checksHead)
	doctor, preflight := checks.Lists()
	for _, list := range []struct {
		title string
		all   []checks.Check
	}{{"An installation: doctor", doctor}, {"Before an installation: preflight", preflight}} {
		fmt.Fprintf(&b, "\n## %s\n", list.title)
		for _, c := range list.all {
			fmt.Fprintf(&b, "\n### %s\n\n", c.ID)
			wrap(&b, "", c.Asks)
			b.WriteString("\n")
			does := "**What to do**: "
			if c.OnlyAzureKnows() {
				does = "Only Azure knows. " + does
			}
			wrap(&b, "", does+c.Next+".")
		}
	}
	return b.String()
}

const pageColumns = 115

// wrap writes a paragraph in lines of at most pageColumns.
func wrap(b *strings.Builder, begin, text string) {
	line := begin
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(word) > pageColumns {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", len(begin))
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}
