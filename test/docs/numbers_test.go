package docs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

const (
	numbersFile = "test/docs/numbers.yaml"
	valuesFile  = "charts/azuredisk/values.yaml"
	// modulesFile pins Kubernetes and the sidecars.
	modulesFile = "playground/programs/kubernetes/go.mod"
)

// bindings is numbersFile.
type bindings struct {
	// Constants are the pages by what their numbers are equal to; see valueOf.
	Constants map[string]string `json:"constants"`
	// Stated are numbers that no constant has.
	Stated []struct {
		Is      string `json:"is"`
		Because string `json:"because"`
		Pages   string `json:"pages"`
	} `json:"stated"`
}

const oneNumber = `(?:\d+(?:,\d{3})*(?:\.\d+)?|(?:two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty)\b)`

var (
	quantityText = regexp.MustCompile("(?i)(?:^|[^\\w.`/-])(" + oneNumber + `)((?:(?:,| to| and| or) ` + oneNumber + `)*)\s*` +
		`(?:(ms|s|seconds?|min|minutes?|h|hours?|days?|weeks?|KiB|KB|MiB|MB|GiB|GB|TiB|Mi|Gi|times|IOPS)\b|(%))`)
	generatedFrom = regexp.MustCompile(`(?i)this page\s+is generated|^# API Reference`)
	anyFence      = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inText        = regexp.MustCompile(oneNumber)
	inWord        = map[string]float64{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
		"ten": 10, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30}
	ofUnit = map[string]float64{"ms": 0.001, "s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400,
		"week": 7 * 86400, "kib": 1 << 10, "kb": 1e3, "mi": 1 << 20, "mib": 1 << 20, "mb": 1e6, "gi": 1 << 30, "gib": 1 << 30,
		"gb": 1e9, "tib": 1 << 40}
)

// quantity is a number with a unit in a text: 5 minutes is the number 5, and the value 300.
type quantity struct {
	text          string
	number, value float64
	decimals      int
}

// quantities returns the numbers of a text that have a unit, also those of "6, 7 and 9 s".
func quantities(text string) []quantity {
	var found []quantity
	for _, m := range quantityText.FindAllStringSubmatch(text, -1) {
		unit := strings.ToLower(m[3])
		if len(unit) > 2 {
			unit = strings.TrimSuffix(unit, "s")
		}
		for _, n := range inText.FindAllString(strings.ToLower(m[1]+m[2]), -1) {
			number, isWord := inWord[n]
			if !isWord {
				number, _ = strconv.ParseFloat(strings.Trim(strings.ReplaceAll(n, ",", ""), "."), 64)
			}
			_, decimals, _ := strings.Cut(n, ".")
			found = append(found, quantity{n + " " + cmp.Or(m[3], m[4]), number, number * cmp.Or(ofUnit[unit], 1), len(decimals)})
		}
	}
	return found
}

// TestNumbersAreBound finds a number with a unit, on a page or in a comment of the chart's values, that is not equal to
// what numbers.yaml or figures.yaml name for that page. Decisions (docs/adr) have the numbers of their time.
func TestNumbersAreBound(t *testing.T) {
	var table bindings
	expect.Must(t, yaml.UnmarshalStrict([]byte(read(t, numbersFile)), &table))
	bound := map[string]map[string][]value{} // by page and row
	add := func(row, on string, values ...value) {
		for page := range strings.FieldsSeq(on) {
			if bound[page] == nil {
				bound[page] = map[string][]value{}
			}
			bound[page][row] = append(bound[page][row], values...)
		}
	}
	s := sources{t: t, packages: map[string][]*ast.File{}, modules: map[string]string{}}
	for _, source := range slices.Sorted(maps.Keys(table.Constants)) {
		v, err := s.valueOf(source)
		if err != nil {
			t.Errorf("%s: %s: %v", numbersFile, source, err)
			continue
		}
		add(source, table.Constants[source], v)
	}
	for _, row := range table.Stated {
		for _, q := range quantities(row.Is) {
			add(row.Because+": "+q.text, row.Pages, value{number: q.value, seconds: true})
		}
		if row.Because == "" || len(quantities(row.Is)) == 0 {
			t.Errorf("%s: got %+v, want numbers with units, and where they are from", numbersFile, row)
		}
		checkNumbersOf(t, numbersFile, row.Is, named.FindAllStringSubmatch("`"+row.Because+"`", -1))
	}
	for _, f := range readFigures(t) {
		for _, n := range []float64{f.Median, f.Least, f.Most} {
			add(f.Name, f.Pages+" performance", value{number: n, figure: true})
		}
	}
	texts := numberedTexts(t)
	for page, rows := range bound {
		if _, ok := texts[page]; !ok {
			t.Errorf("%s: got the page %q, want a name of a page without its folder and .md", numbersFile, page)
		}
		found := quantities(texts[page])
		for row, values := range rows {
			inTable := page == "performance" && values[0].figure
			if !inTable && !slices.ContainsFunc(found, func(q quantity) bool { return matches(values, q) }) {
				t.Errorf("%s: got no number of %s that is equal to %s (%v): correct the page, or remove it from the row",
					numbersFile, page, row, values)
			}
		}
	}
	for page, text := range texts {
		for _, q := range quantities(text) {
			all := slices.Concat(slices.Collect(maps.Values(bound[page]))...)
			if !matches(all, q) {
				t.Errorf("%s: got %q, which no row of %s for this page is equal to: correct it, or name the page "+
					"in the row of its constant", page, q.text, numbersFile)
			}
		}
	}
}

func matches(values []value, q quantity) bool {
	return slices.ContainsFunc(values, func(v value) bool {
		shift := math.Pow10(q.decimals)
		return same(v.number, q.value) || !v.seconds && same(v.number, q.number) ||
			v.figure && same(math.Round(v.number*shift)/shift, q.number)
	})
}

func same(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

// numberedTexts are the texts with numbers that are checked, by the names of their pages.
func numberedTexts(t *testing.T) map[string]string {
	t.Helper()
	var comments []string
	for _, line := range strings.Split(read(t, valuesFile), "\n") {
		if _, comment, ok := strings.Cut(line, "# -- "); ok {
			comments = append(comments, comment)
		}
	}
	found := map[string]string{"values": strings.Join(comments, "\n")}
	for _, page := range pages(t) {
		checked := strings.HasPrefix(page, "docs/") && !strings.HasPrefix(page, "docs/adr/") && page != "docs/README.md" &&
			!generatedFrom.MatchString(read(t, page)) || !strings.Contains(page, "/") && page != "CHANGELOG.md"
		if checked {
			text := generatedPart.ReplaceAllString(anyFence.ReplaceAllString(read(t, page), ""), "")
			found[strings.TrimSuffix(filepath.Base(page), ".md")] = linkTarget.ReplaceAllString(text, "]")
		}
	}
	return found
}

// value is what a number may be equal to.
type value struct {
	number float64
	// seconds says that the number is in seconds or bytes; otherwise it may be in the unit of the page.
	seconds bool
	// figure says that the page may round it.
	figure bool
}

// sources finds constants.
type sources struct {
	t        *testing.T
	packages map[string][]*ast.File
	modules  map[string]string // their folders
}

// valueOf returns the value of "chart VALUE", of "FOLDER.NAME" for a constant, a variable, a field that is set or a flag
// of a folder of the tree, or of a module that modulesFile pins, or of a sum of them.
func (s *sources) valueOf(source string) (sum value, err error) {
	for part := range strings.SplitSeq(source, " + ") {
		var v value
		if path, ok := strings.CutPrefix(part, "chart "); ok {
			v, err = chartValue(s.t, path)
		} else {
			path, unit, _ := strings.Cut(part, " ")
			at := strings.LastIndex(path, ".")
			v, err = s.named(path[:max(at, 0)], path[at+1:])
			if unit != "" {
				q := quantities("1 " + unit)[0]
				v.number, v.seconds = v.number*q.value, true
			}
		}
		if err != nil {
			return value{}, err
		}
		sum.number, sum.seconds = sum.number+v.number, v.seconds
	}
	return sum, nil
}

func chartValue(t *testing.T, path string) (value, error) {
	var at any
	expect.Must(t, yaml.Unmarshal([]byte(read(t, valuesFile)), &at))
	for key := range strings.SplitSeq(path, ".") {
		fields, _ := at.(map[string]any)
		at = fields[key]
	}
	text := fmt.Sprint(at)
	if d, err := time.ParseDuration(text); err == nil && d != 0 {
		return value{number: d.Seconds(), seconds: true}, nil
	}
	q, err := resource.ParseQuantity(strings.TrimSuffix(text, "%"))
	return value{number: q.AsApproximateFloat64()}, err
}

func (s *sources) named(folder, name string) (value, error) {
	var found []ast.Expr
	for _, file := range s.parsed(folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if id.Name == name && i < len(n.Values) {
						found = slices.Insert(found, 0, n.Values[i])
					}
				}
			case *ast.AssignStmt:
				if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && to.Sel.Name == name {
					found = append(found, n.Rhs[0])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == name {
					found = append(found, n.Value)
				}
			case *ast.CallExpr:
				for i, arg := range n.Args {
					if flag, ok := text(arg); ok && flag == name && i+1 < len(n.Args) {
						found = append(found, n.Args[i+1])
					}
				}
			}
			return true
		})
	}
	for _, e := range found {
		if v, err := s.evaluate(e); err == nil {
			return v, nil
		}
	}
	return value{}, fmt.Errorf("got no number of the name %q in %s, want one", name, folder)
}

// parsed returns the files of a folder of the tree or of a pinned module.
func (s *sources) parsed(folder string) []*ast.File {
	if files, ok := s.packages[folder]; ok {
		return files
	}
	dir := filepath.Join(tree.Root(), folder)
	if first, _, _ := strings.Cut(folder, "/"); strings.Contains(first, ".") {
		dir = s.module(folder)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	expect.Must(s.t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			expect.Must(s.t, err)
			s.packages[folder] = append(s.packages[folder], file)
		}
	}
	return s.packages[folder]
}

var required = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)

// module returns the folder of a package of a module in Go's cache. It is downloaded if it is not there.
func (s *sources) module(pkg string) string {
	s.t.Helper()
	for _, m := range required.FindAllStringSubmatch(read(s.t, modulesFile), -1) {
		rest, ok := strings.CutPrefix(pkg, m[1]+"/")
		if !ok {
			continue
		}
		if s.modules[m[1]] == "" {
			cmd := exec.CommandContext(s.t.Context(), "go", "mod", "download", "-json", m[1]+"@"+m[2])
			cmd.Dir = filepath.Join(tree.Root(), filepath.Dir(modulesFile))
			out, err := cmd.Output()
			var module struct{ Dir string }
			if err == nil {
				err = json.Unmarshal(out, &module)
			}
			expect.Must(s.t, err)
			s.modules[m[1]] = module.Dir
		}
		return filepath.Join(s.modules[m[1]], rest)
	}
	s.t.Fatalf("%s: got no module of %s, want one", modulesFile, pkg)
	return ""
}

var ofTime = map[string]float64{"Millisecond": 0.001, "Second": 1, "Minute": 60, "Hour": 3600}

// evaluate computes an expression of numbers and times.
func (s *sources) evaluate(e ast.Expr) (value, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.ParseFloat(strings.ReplaceAll(e.Value, "_", ""), 64)
		return value{number: n}, err
	case *ast.SelectorExpr:
		if n, ok := ofTime[e.Sel.Name]; ok {
			return value{number: n, seconds: true}, nil
		}
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return s.evaluate(e.Args[0])
		}
	case *ast.CompositeLit:
		if len(e.Elts) == 1 {
			if field, ok := e.Elts[0].(*ast.KeyValueExpr); ok {
				return s.evaluate(field.Value)
			}
		}
	case *ast.BinaryExpr:
		x, err := s.evaluate(e.X)
		if err != nil {
			return value{}, err
		}
		y, err := s.evaluate(e.Y)
		n := map[token.Token]float64{token.ADD: x.number + y.number, token.SUB: x.number - y.number,
			token.MUL: x.number * y.number, token.QUO: x.number / y.number, token.SHL: x.number * math.Pow(2, y.number)}[e.Op]
		return value{number: n, seconds: x.seconds || y.seconds}, err
	}
	return value{}, fmt.Errorf("got the expression %T, want one of numbers", e)
}

// checkNumbersOf finds a number with a unit that none of the named tests has, as a literal or in a text.
func checkNumbersOf(t *testing.T, where, statement string, tests [][]string) {
	t.Helper()
	numbers, known := quantities(statement), map[float64]bool{}
	if len(numbers) == 0 {
		return
	}
	for _, test := range tests {
		if !strings.HasPrefix(test[2], "Test") && !strings.HasPrefix(test[2], "Fuzz") {
			return // a sentence of the playground's
		}
		head := "func " + test[2] + "("
		for _, file := range filesWith(t, test[1], head) {
			_, body, _ := strings.Cut(file, head)
			body, _, _ = strings.Cut(body, "\n}\n")
			for _, literal := range regexp.MustCompile(`\d[\d_]*(?:\.\d+)?`).FindAllString(body, -1) {
				n, _ := strconv.ParseFloat(strings.ReplaceAll(literal, "_", ""), 64)
				known[n] = true
			}
		}
	}
	for _, q := range numbers {
		if len(tests) > 0 && !known[q.number] && !known[q.value] && !known[math.Round(q.value*1000)] {
			t.Errorf("%s: got %q in the statement %q, want a number that one of its tests has", where, q.text, statement)
		}
	}
}
