package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/plan/cause"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// reasonFile has the constants of all reasons.
const reasonFile = "api/v1/reason.go"

// otherNames are literals that equal a reason and name something else, by file.
var otherNames = map[string][]string{
	"internal/plan/cause/error.go":           {"QuotaExceeded", "ScopeLocked"}, // codes of Azure
	"internal/plan/lostnode/pods.go":         {"DaemonSet"},                    // a kind
	"internal/plan/maintenance/move.go":      {"DaemonSet"},                    // a kind
	"internal/plan/nodehealth/nodehealth.go": {"Healthy"},                      // a state
	"internal/plan/cause/cause.go":           {"Healthy"},                      // an outcome
	"internal/cli/checks/parts.go":           {"DaemonSet"},                    // a kind
	"internal/cli/checks/preflight.go":       {"OtherDriver"},                  // a check
	"internal/cli/checks/doctor.go":          {"Registered"},                   // a check
	"internal/cli/collect/client.go":         {"DaemonSet"},                    // a kind
	"internal/cli/collect/bundle.go":         {"DaemonSet"},                    // a kind
}

// TestReasonsAreConstants compares the constants of api/v1 with the table of causes, and finds reasons
// that are written as literals, and constants that the product does not use.
func TestReasonsAreConstants(t *testing.T) {
	constants, used := map[string]string{}, map[string]bool{}
	visit(t, reasonFile, func(n ast.Node) {
		if v, ok := n.(*ast.ValueSpec); ok {
			value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			expect.Must(t, err)
			constants[value] = v.Names[0].Name
			if v.Names[0].Name != "Reason"+value {
				t.Errorf("%s: got constant %s of %q, want Reason%s", reasonFile, v.Names[0].Name, value, value)
			}
		}
	})
	rows := map[string]bool{}
	for _, c := range cause.Table() {
		rows[c.ID] = true
		if constants[c.ID] == "" {
			t.Errorf("the table of causes has %s, want only constants of %s", c.ID, reasonFile)
		}
	}
	for _, file := range goFiles(t) {
		of, dir := strings.Split(file, "/")[0], filepath.Dir(file)
		if of != "internal" && of != "cmd" && of != "cli" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		visit(t, file, func(n ast.Node) {
			switch n := n.(type) {
			case *ast.Ident:
				used[n.Name] = used[n.Name] || dir != "internal/plan/cause" || file == "internal/plan/cause/error.go"
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					return
				}
				value, err := strconv.Unquote(n.Value)
				expect.Must(t, err)
				if constants[value] != "" && !slices.Contains(otherNames[file], value) {
					t.Errorf("%s: got the literal %q, want apiv1.%s", file, value, constants[value])
				}
			}
		})
	}
	for value, name := range constants {
		switch {
		case !rows[value]:
			t.Errorf("%s has %s, and the table of causes no row of it, want one", reasonFile, name)
		case !used[name]:
			t.Errorf("no part of the product uses %s, want it used or removed", name)
		}
	}
}

// conditionReasons are reasons of one word that only conditions have.
var conditionReasons = []string{"Published", "Publishing", "Registered", "Serving", "Starting", "Stopped"}

// kubernetesReasons are the reasons of events of the kubelet, the node life-cycle and attach-detach controllers, the
// scheduler and the sidecars. The driver's own may not be among them.
var kubernetesReasons = []string{"BackOff", "Created", "Deleted", "Drain", "ExternalProvisioning", "Failed", "FailedBinding",
	"FailedCreate", "FailedDetachVolume", "FailedMapVolume", "FailedMount", "FailedScheduling", "FailedUnMount",
	"FileSystemResizeFailed", "FileSystemResizeRequired", "FileSystemResizeSuccessful", "Killing", "NodeAllocatableEnforced",
	"NodeHasSufficientMemory", "NodeNotReady", "NodeNotSchedulable", "NodeReady", "NodeSchedulable", "NodeShutdown",
	"Preempted", "Preempting", "Provisioning", "ProvisioningFailed", "ProvisioningSucceeded", "Pulled", "Pulling",
	"Rebooted", "RegisteredNode", "RemovingNode", "Resizing", "Scheduled", "Started", "Starting", "Stopped",
	"TaintManagerEviction", "Updated", "VolumeConditionAbnormal", "VolumeDelete", "VolumeFailedDelete",
	"VolumeResizeFailed", "VolumeResizeSuccessful", "WaitForFirstConsumer"}

// TestReasonsOfEventsAreSpecific: an alert or a field selector on a reason finds the driver's events and no others.
// FailedAttachVolume, SuccessfulAttachVolume and VolumeAttachmentLimitExceeded mean what they mean in Kubernetes.
func TestReasonsOfEventsAreSpecific(t *testing.T) {
	for _, c := range cause.Table() {
		if len(c.On) == 0 || slices.Contains(conditionReasons, c.ID) {
			continue
		}
		if rest := c.ID[1:]; rest == strings.ToLower(rest) {
			t.Errorf("got the reason %s, want at least two words, as in DiskCreated", c.ID)
		}
		if slices.Contains(kubernetesReasons, c.ID) {
			t.Errorf("got the reason %s, which another component uses", c.ID)
		}
	}
}

// visit walks a Go file.
func visit(t *testing.T, file string, see func(ast.Node)) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(tree.Root(), file), nil, 0)
	expect.Must(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		if n != nil {
			see(n)
		}
		return true
	})
}

// sentences are fields with texts for readers.
var sentences = []string{"Message", "Next", "Sentence", "Note", "Evidence", "HeldBack", "Says", "Quote"}

// interpreters are the functions of package strings by which code looks into a text.
var interpreters = []string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "Cut", "CutPrefix", "CutSuffix", "EqualFold",
	"Fields", "Index", "Split", "SplitN", "SplitAfter"}

// othersWords are the files that read a sentence of another program, which has no reason for it.
var othersWords = map[string]string{
	"internal/plan/maintenance/maintenance.go": "a condition that AKS sets on Nodes",
	"internal/cli/explain/claim.go":            "whether csi-provisioner quotes an answer of the driver",
	"internal/cli/explain/pod.go":              "kube-scheduler's count of the nodes that it excluded",
}

// TestNoSentenceIsInterpreted finds code that looks into a message instead of reading its reason.
func TestNoSentenceIsInterpreted(t *testing.T) {
	isSentence := func(e ast.Expr) bool {
		s, ok := e.(*ast.SelectorExpr)
		return ok && slices.Contains(sentences, s.Sel.Name)
	}
	isText := func(e ast.Expr) bool {
		l, ok := e.(*ast.BasicLit)
		return ok && l.Kind == token.STRING && l.Value != `""`
	}
	found := map[string]bool{}
	for _, file := range goFiles(t) {
		of := strings.Split(file, "/")[0]
		if of != "internal" && of != "cmd" && of != "cli" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		visit(t, file, func(n ast.Node) {
			switch n := n.(type) {
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || len(n.Args) == 0 || !isSentence(n.Args[0]) {
					return
				}
				pkg, ok := f.X.(*ast.Ident)
				found[file] = found[file] || ok && pkg.Name == "strings" && slices.Contains(interpreters, f.Sel.Name)
			case *ast.BinaryExpr:
				compares := n.Op == token.EQL || n.Op == token.NEQ
				found[file] = found[file] || compares && (isSentence(n.X) && isText(n.Y) || isSentence(n.Y) && isText(n.X))
			case *ast.SwitchStmt:
				found[file] = found[file] || n.Tag != nil && isSentence(n.Tag)
			}
		})
	}
	for file, is := range found {
		if is && othersWords[file] == "" {
			t.Errorf("%s: got code that looks into a sentence, want it to read a reason or a field", file)
		}
	}
	for file, of := range othersWords {
		if !found[file] {
			t.Errorf("%s: got no code that looks into %s, want it removed from the list", file, of)
		}
	}
}

var matcher = regexp.MustCompile(`\b(?:reason|state)(?:=|!=|=~|!~)"([^"]*)"`)

// TestAlertsNameValuesThatExist finds a value of a label that an alert asks for, and that was renamed.
func TestAlertsNameValuesThatExist(t *testing.T) {
	values := map[string]bool{}
	for _, file := range goFiles(t) {
		if filepath.Dir(file) == "api/v1" {
			visit(t, file, func(n ast.Node) {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					value, err := strconv.Unquote(l.Value)
					expect.Must(t, err)
					values[value] = true
				}
			})
		}
	}
	found := matcher.FindAllStringSubmatch(read(t, "charts/azuredisk/files/rules.yaml"), -1)
	if len(found) == 0 {
		t.Error("got no rule that asks for a reason or a state, want some")
	}
	for _, m := range found {
		for value := range strings.SplitSeq(m[1], "|") {
			if !values[value] {
				t.Errorf("rules.yaml: got %s, want a value that a constant of api/v1 has: %q", m[0], value)
			}
		}
	}
}
