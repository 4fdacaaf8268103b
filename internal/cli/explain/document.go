package explain

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
)

// APIVersion is that of all documents. docs/reference/cli-output.md says what scripts may rely on.
const APIVersion = "cli." + apiv1.GroupName + "/v1alpha1"

// Document is what each structured output begins with.
type Document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Time is the API server's.
	Time time.Time `json:"time"`
	// Unread is what could not be read.
	Unread []Unread `json:"unread,omitempty"`
}

// NewDocument begins a document.
func NewDocument(kind string, now time.Time, unread []Unread) Document {
	return Document{APIVersion: APIVersion, Kind: kind, Time: now, Unread: unread}
}

// Unread is a resource that could not be read.
type Unread struct {
	// What is the resource, as in "nodes" or "azvolumes.disk.csi.azure.com".
	What   string       `json:"resource"`
	Reason UnreadReason `json:"reason"`
	// Why says it in a sentence.
	Why string `json:"message"`
}

// UnreadReason is why a resource could not be read.
type UnreadReason string

// The reasons.
const (
	UnreadForbidden UnreadReason = "Forbidden"
	// UnreadNotServed: the cluster does not have the resource.
	UnreadNotServed UnreadReason = "NotServed"
	UnreadFailed    UnreadReason = "Failed"
)

// row is one of a list.
type row interface {
	columns() []string
	Cells() []string
}

// List is a document with rows.
type List[Row row] struct {
	Document
	Items []Row `json:"items"`
}

// Text is the list as a table.
func (l List[Row]) Text() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	var none Row
	fmt.Fprintln(table, strings.Join(none.columns(), "\t"))
	for _, r := range l.Items {
		fmt.Fprintln(table, strings.Join(r.Cells(), "\t"))
	}
	_ = table.Flush() // into memory
	return b.String()
}

// Exit codes of all commands, beside those of outcomes.
const (
	ExitNotFound = 4
	// ExitUsage is EX_USAGE of sysexits.h.
	ExitUsage = 64
)

// ExitCode is a row of the table of exit codes: what the code means for each command.
type ExitCode struct {
	Code                        int
	Why, WhatIf, Checks, Others string
}

const (
	noAnswer = "it cannot be told"
	usage    = "wrong usage"
)

// ExitCodes is the table of exit codes. A command does not have a code without a meaning.
func ExitCodes() []ExitCode {
	return []ExitCode{
		{cause.Healthy.ExitCode(), "healthy", "all pods find their disks attached, or there are none", "all is well", "done"},
		{cause.Waits.ExitCode(), "it waits, and that ends without you", "some pods wait for an attach", "there are warnings", ""},
		{cause.NeedsAction.ExitCode(), "it needs an action", "some pods need an action", "something failed", ""},
		{cause.CannotTell.ExitCode(), noAnswer, noAnswer, noAnswer, "it failed"},
		{ExitNotFound, "there is no such object", "there is no such node or zone", "", ""},
		{ExitUsage, usage, usage, usage, usage},
	}
}

// ExitHelp is the end of the help of a command: its column of the table.
func ExitHelp(of func(ExitCode) string) string {
	text := "\n\nExit codes:"
	for _, c := range ExitCodes() {
		if means := of(c); means != "" {
			text += fmt.Sprintf("\n  %-2d  %s", c.Code, means)
		}
	}
	return text
}
