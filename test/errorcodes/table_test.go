package errorcodes

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

var update = flag.Bool("update", false, "write the reference page")

const page = "../../docs/reference/errors.md"

var must = expect.Must

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// row says which code an RPC ends with when something is so. make makes it so, and calls.
type row[W any] struct {
	rpc  string
	when string
	code codes.Code
	make func(W) error
}

// service is a CSI service with its rows.
type service struct {
	desc  grpc.ServiceDesc
	title string
	rows  []documented
}

// documented is a row as the page shows it.
type documented struct {
	rpc, when string
	code      codes.Code
}

func show[W any](rows []row[W]) []documented {
	shown := make([]documented, 0, len(rows))
	for _, r := range rows {
		shown = append(shown, documented{r.rpc, r.when, r.code})
	}
	return shown
}

func services() []service {
	return []service{
		{csi.Identity_ServiceDesc, "Identity", show(identityRows())},
		{csi.Controller_ServiceDesc, "Controller", show(controllerRows())},
		{csi.Node_ServiceDesc, "Node", show(nodeRows())},
	}
}

// run makes every row happen in a world of its service.
func run[W any](t *testing.T, rows []row[W], world func(*testing.T) W) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.rpc+" "+r.when, func(t *testing.T) {
			err := r.make(world(t))
			if got := status.Code(err); got != r.code {
				t.Fatalf("%s, want %s: %v", got, r.code, err)
			}
			if err != nil && status.Convert(err).Message() == "" {
				t.Error("the error has no message")
			}
		})
	}
}

// alike returns the last of the errors of calls that end with the same code.
func alike(errs ...error) error {
	for _, err := range errs {
		if status.Code(err) != status.Code(errs[0]) {
			return status.Errorf(codes.Unknown, "the codes differ: %v, %v", errs[0], err)
		}
	}
	return errs[len(errs)-1]
}

func TestEveryRPCHasRows(t *testing.T) {
	for _, s := range services() {
		served := map[string]bool{}
		for _, method := range s.desc.Methods {
			served[method.MethodName] = true
			if !slices.ContainsFunc(s.rows, func(r documented) bool { return r.rpc == method.MethodName }) {
				t.Errorf("%s of %s has no row", method.MethodName, s.title)
			}
		}
		seen := map[documented]bool{}
		for _, r := range s.rows {
			if !served[r.rpc] || seen[r] {
				t.Errorf("%s: a row of no RPC, or twice: %+v", s.title, r)
			}
			seen[r] = true
		}
	}
}

func TestTheReferencePageIsWhatTheTableSays(t *testing.T) {
	want := render()
	if *update {
		must(t, os.WriteFile(page, want, 0o644))
	}
	got, err := os.ReadFile(page)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the table says; run: go test ./test/errorcodes -update", filepath.Base(page))
	}
}

func render() []byte {
	var b bytes.Buffer
	b.WriteString(`# Error codes

Every code with which the driver's CSI calls end, and when. Each row is made to happen by a test (` + "`test/errorcodes`" +
		`), which also writes this page.

Kubernetes' sidecars and the kubelet repeat every call that failed, with a growing delay. [Final codes](final-codes.md)
says after which codes they forget the call, and how the driver keeps such a code from leaving something behind.

Any call can also end with ` + "`Unavailable`" + ` if the API server cannot be reached, ` + "`Canceled`" +
		` if the caller cancels it,
` + "`DeadlineExceeded`" + ` if its deadline ends, and ` + "`Internal`" + ` after an error that the driver does not expect.
`)
	for _, s := range services() {
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		for _, method := range s.desc.Methods {
			fmt.Fprintf(&b, "\n### %s\n\n| when | code |\n|---|---|\n", method.MethodName)
			for _, r := range s.rows {
				if r.rpc == method.MethodName {
					fmt.Fprintf(&b, "| %s | `%s` |\n", r.when, r.code)
				}
			}
		}
	}
	return b.Bytes()
}
