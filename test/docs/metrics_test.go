package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// declared is a metric as a source file declares it.
type declared struct {
	name, help, kind string
	labels           []string
}

// v1Metrics keep the names that dashboards for the V1 driver know.
var v1Metrics = []string{
	"azuredisk_csi_driver_operation_duration_seconds",
	"azuredisk_csi_driver_operation_duration_seconds_labeled",
	"azuredisk_csi_driver_operations_total",
}

// vocabularies are the constants that are values of labels, by the folder and by their type or the
// beginning of their name.
var vocabularies = map[string][]string{
	"api/v1":                               {"ProofType", "MaintenanceType", "VolumeState"},
	"internal/controller/failover":         {"phase", "result"},
	"internal/node/csi":                    {"try"},
	"internal/plan/nodehealth":             {"PauseResult"},
	"internal/scheduler":                   {"Fault", "result"},
	"provisioner":                          {"Kind"},
	"provisioner/azure/internal/operation": {"Kind"},
	"provisioner/azure/internal/pacing":    {"Policy"},
}

// parseSources parses the Go files of the driver, by their paths.
func parseSources(t *testing.T) map[string]*ast.File {
	t.Helper()
	parsed := map[string]*ast.File{}
	for _, path := range files(t, ".go", 100) {
		if strings.HasSuffix(path, "_test.go") || !regexp.MustCompile(`^(api|internal|provisioner|cmd)/`).MatchString(path) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(tree.Root(), path), nil, parser.SkipObjectResolution)
		expect.Must(t, err)
		parsed[path] = file
	}
	return parsed
}

// text returns the value of a constant expression of string literals.
func text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, isX := text(e.X)
		y, isY := text(e.Y)
		return x + y, isX && isY && e.Op == token.ADD
	default:
		return "", false
	}
}

// calls returns the calls in a file, with the last name of what is called.
func calls(file *ast.File, visit func(called string, call *ast.CallExpr)) {
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				visit(f.Sel.Name, call)
			case *ast.Ident:
				visit(f.Name, call)
			}
		}
		return true
	})
}

var constructor = regexp.MustCompile(`^New(Counter|Gauge|Histogram)(Vec|Func)?$`)

// declaredMetrics finds the metrics that are made by a constructor of Prometheus' client or by a function that has their
// name and their help first.
func declaredMetrics(sources map[string]*ast.File) map[string]declared {
	found := map[string]declared{}
	for _, file := range sources {
		calls(file, func(called string, call *ast.CallExpr) {
			if len(call.Args) == 0 {
				return
			}
			m := declared{kind: "gauge"}
			if options, ok := call.Args[0].(*ast.CompositeLit); ok && constructor.MatchString(called) {
				m.kind = strings.ToLower(constructor.FindStringSubmatch(called)[1])
				for _, e := range options.Elts {
					if field, ok := e.(*ast.KeyValueExpr); ok {
						switch value, _ := text(field.Value); fmt.Sprint(field.Key) {
						case "Name":
							m.name = value
						case "Help":
							m.help = value
						}
					}
				}
				m.labels = listed(call.Args[1:])
			} else if len(call.Args) > 1 {
				m.name, _ = text(call.Args[0])
				m.help, _ = text(call.Args[1])
				m.labels = listed(call.Args[2:])
				if strings.HasSuffix(m.name, "_total") {
					m.kind = "counter"
				}
			}
			if strings.HasPrefix(m.name, "azuredisk_") {
				found[m.name] = m
			}
		})
	}
	return found
}

// listed returns the strings of the first argument if that is a list.
func listed(args []ast.Expr) (values []string) {
	if len(args) == 0 {
		return nil
	}
	if list, ok := args[0].(*ast.CompositeLit); ok {
		for _, e := range list.Elts {
			if value, ok := text(e); ok {
				values = append(values, value)
			}
		}
	}
	return values
}

// exposition is the metric as a program would serve it.
func (d declared) exposition() string {
	var labels []string
	for _, l := range d.labels {
		labels = append(labels, l+`="x"`)
	}
	series := func(suffix string, more ...string) string {
		return d.name + suffix + "{" + strings.Join(append(slices.Clone(labels), more...), ",") + "} 1\n"
	}
	out := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", d.name, d.help, d.name, d.kind)
	if d.kind == "histogram" {
		return out + series("_bucket", `le="+Inf"`) + series("_sum") + series("_count")
	}
	return out + series("")
}

var (
	// misplacedUnit is a unit that is neither at the end, nor before _per_ or _total.
	misplacedUnit = regexp.MustCompile(`_(seconds|bytes)_(?:[^pt]|p[^e]|t[^o])`)
	noBaseUnit    = regexp.MustCompile(`_(percent|mbps|mib|gib|mb|gb|ms|hours|days)(_|$)`)
	camelCase     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	aggregate     = regexp.MustCompile(`(?i)^(total|all|sum|any)$`)
)

// faults returns what is wrong with a metric by Prometheus' rules that promtool's linter does not know.
// https://prometheus.io/docs/practices/naming/
func (d declared) faults() (faults []string) {
	switch {
	case misplacedUnit.MatchString(d.name):
		faults = append(faults, "the unit is not at the end")
	case noBaseUnit.MatchString(d.name):
		faults = append(faults, "the unit is not a base unit")
	case d.kind == "histogram" && !strings.HasSuffix(d.name, "_duration_seconds") && !strings.Contains(d.name, "_per_"):
		faults = append(faults, "a histogram of durations does not end in _duration_seconds")
	case strings.Contains(d.name, "timestamp") && !strings.HasSuffix(d.name, "_timestamp_seconds"):
		faults = append(faults, "a time does not end in _timestamp_seconds")
	case strings.HasSuffix(d.name, "_info") && d.kind != "gauge":
		faults = append(faults, "information is not a gauge")
	}
	if d.help == "" || !strings.HasSuffix(d.help, ".") {
		faults = append(faults, "the help is not a sentence")
	}
	if slices.Contains(d.labels, "kind") {
		faults = append(faults, "the label kind says nothing: use type, proof or reason")
	}
	return faults
}

// TestMetricsFollowPrometheusRules holds all metrics but V1's to promtool's linter and to the rules that it lacks.
func TestMetricsFollowPrometheusRules(t *testing.T) {
	t.Parallel()
	found := declaredMetrics(parseSources(t))
	for _, m := range regexp.MustCompile("`(azuredisk_[a-z0-9_]+)`").FindAllStringSubmatch(
		read(t, "docs/reference/metrics.md"), -1) {
		if found[m[1]].name == "" {
			t.Errorf("%s: got no declaration in the sources, want one that this test understands", m[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if slices.Contains(v1Metrics, name) {
			continue
		}
		problems, err := promlint.New(strings.NewReader(found[name].exposition())).Lint()
		expect.Must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", name, p.Text)
		}
		for _, fault := range found[name].faults() {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// TestFaultsOfMetricsAreFound: names as this driver's metrics had before they were put right, and their like.
func TestFaultsOfMetricsAreFound(t *testing.T) {
	t.Parallel()
	for _, d := range []declared{
		{name: "azuredisk_step_seconds", kind: "histogram", help: "Good."},
		{name: "azuredisk_wait_seconds", kind: "histogram", help: "Good."},
		{name: "azuredisk_seconds_of_use", kind: "gauge", help: "Good."},
		{name: "azuredisk_use_percent", kind: "gauge", help: "Good."},
		{name: "azuredisk_timestamp_of_use", kind: "gauge", help: "Good."},
		{name: "azuredisk_release_proofs_total", kind: "counter", help: "Good.", labels: []string{"kind"}},
		{name: "azuredisk_releases_total", kind: "counter"},
	} {
		if len(d.faults()) == 0 {
			t.Errorf("%s: got no fault, want one", d.name)
		}
	}
}

// labelValues returns the values that a file gives to labels: literals, and what is assigned to a variable.
func labelValues(file *ast.File) (values []string) {
	variables := map[string]bool{}
	calls(file, func(called string, call *ast.CallExpr) {
		if called != "WithLabelValues" {
			return
		}
		for _, arg := range call.Args {
			if value, ok := text(arg); ok {
				values = append(values, value)
			} else if variable, ok := arg.(*ast.Ident); ok {
				variables[variable.Name] = true
			}
		}
	})
	ast.Inspect(file, func(n ast.Node) bool {
		if assigned, ok := n.(*ast.AssignStmt); ok && len(assigned.Lhs) == 1 {
			if variable, ok := assigned.Lhs[0].(*ast.Ident); ok && variables[variable.Name] {
				if value, ok := text(assigned.Rhs[0]); ok {
					values = append(values, value)
				}
			}
		}
		return true
	})
	return values
}

// constants returns the strings of a file's constants of a type, or whose names begin with a word.
func constants(file *ast.File, vocabulary string) (values []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if value, ok := text(spec.Values[0]); ok && value != "" &&
			(fmt.Sprint(spec.Type) == vocabulary || spec.Type == nil && strings.HasPrefix(spec.Names[0].Name, vocabulary)) {
			values = append(values, value)
		}
		return true
	})
	return values
}

// TestValuesOfLabelsAreOfOneStyle: they are in CamelCase as the driver's reasons are, and none of them is an aggregate of
// the others, which a sum would count twice.
func TestValuesOfLabelsAreOfOneStyle(t *testing.T) {
	t.Parallel()
	values := map[string][]string{}
	for path, file := range parseSources(t) {
		dir := filepath.ToSlash(filepath.Dir(path))
		values[dir] = append(values[dir], labelValues(file)...)
		for _, vocabulary := range vocabularies[dir] {
			values[dir+"."+vocabulary] = append(values[dir+"."+vocabulary], constants(file, vocabulary)...)
		}
	}
	for dir, all := range vocabularies {
		for _, vocabulary := range all {
			if len(values[dir+"."+vocabulary]) < 2 {
				t.Errorf("%s.%s: got %q, want at least two constants", dir, vocabulary, values[dir+"."+vocabulary])
			}
		}
	}
	if got := values["internal/controller/liveness"]; !slices.Contains(got, "Answered") {
		t.Errorf("got the values %q of the results of probes, want Answered among them", got)
	}
	for where, all := range values {
		for _, value := range all {
			if !camelCase.MatchString(value) || aggregate.MatchString(value) {
				t.Errorf("%s: got the value %q of a label, want CamelCase and no aggregate", where, value)
			}
		}
	}
}
