// The reach program says what the simulation does not reach: the blocks of code that no history runs.
// Usage:
//
//	go run ./hack/reach -profile FILE [-reasons FILE]
//
// It prints a table by package, and each block that is not reached and has no reason, and ends with 1
// if there is one. A reason is a line "PREFIX # REASON": it is that of the blocks whose name begins
// with PREFIX, and a prefix that no such block has is an error.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/cover"
)

// module is the prefix of the names of files in a profile.
const module = "github.com/azuredisk-csi/azuredisk/"

func main() {
	profile := flag.String("profile", "out/reach.cover", "coverage of the histories, as go test -coverprofile writes it")
	reasons := flag.String("reasons", "test/simulation/unreached.txt", "why blocks are not reached")
	flag.Parse()
	missing, err := report(os.Stdout, ".", *profile, *reasons)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reach:", err)
		os.Exit(2)
	}
	if missing > 0 {
		os.Exit(1)
	}
}

// count of the blocks of a package.
type count struct{ blocks, reached, explained int }

func (c count) row(name string) string {
	reached := 100 * float64(c.reached) / float64(max(c.blocks, 1))
	return fmt.Sprintf("| %s | %d | %.1f %% | %d | %d |", name, c.blocks, reached, c.explained, c.blocks-c.reached-c.explained)
}

// report prints the table, and returns how many blocks have no reason.
func report(w io.Writer, root, profile, reasonsFile string) (int, error) {
	profiles, err := cover.ParseProfiles(profile)
	if err != nil {
		return 0, err
	}
	reasons, err := readReasons(reasonsFile)
	if err != nil {
		return 0, err
	}
	counts, sum, missing := map[string]*count{}, &count{}, []string(nil)
	for _, p := range profiles {
		file := strings.TrimPrefix(p.FileName, module)
		unreached, err := names(filepath.Join(root, file), file, p.Blocks)
		if err != nil {
			return 0, err
		}
		pkg := filepath.Dir(file)
		if counts[pkg] == nil {
			counts[pkg] = &count{}
		}
		for _, c := range []*count{counts[pkg], sum} {
			c.blocks += len(p.Blocks)
			c.reached += len(p.Blocks) - len(unreached)
		}
		for _, name := range unreached {
			if reasons.explain(name) {
				counts[pkg].explained++
				sum.explained++
			} else {
				missing = append(missing, name)
			}
		}
	}
	fmt.Fprintln(w, "| package | blocks | reached | not reached, with a reason | without |\n|---|---|---|---|---|")
	for _, pkg := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintln(w, counts[pkg].row(pkg))
	}
	fmt.Fprintf(w, "%s\n\n", sum.row("**all**"))
	for _, name := range missing {
		fmt.Fprintln(w, name)
	}
	return len(missing), reasons.unused()
}

// names are the names of the blocks of a file that are not reached: file, function and first line.
func names(path, file string, blocks []cover.ProfileBlock) ([]string, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(source), "\n")
	blocks = slices.SortedFunc(slices.Values(blocks), func(a, b cover.ProfileBlock) int {
		return cmp.Or(cmp.Compare(a.StartLine, b.StartLine), cmp.Compare(a.StartCol, b.StartCol))
	})
	var found []string
	for _, b := range blocks {
		if b.Count == 0 {
			found = append(found, fmt.Sprintf("%s %s: %s", file, enclosing(set, parsed, b.StartLine), first(lines, b)))
		}
	}
	return found, nil
}

// first is the first code of a block.
func first(lines []string, b cover.ProfileBlock) string {
	text := strings.TrimSpace(lines[b.StartLine-1][b.StartCol-1:])
	for line := b.StartLine; (text == "" || text == "{") && line < b.EndLine; line++ {
		text = strings.TrimSpace(lines[line])
	}
	return text
}

// enclosing is the function or method of a line.
func enclosing(set *token.FileSet, parsed *ast.File, line int) string {
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || set.Position(f.Pos()).Line > line || set.Position(f.End()).Line < line {
			continue
		}
		if f.Recv == nil {
			return f.Name.Name
		}
		var of string
		ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok && of == "" {
				of = name.Name
			}
			return of == ""
		})
		return of + "." + f.Name.Name
	}
	return "-"
}

// reasons by the prefix of the blocks' names, and whether a block has it.
type reasons map[string]bool

func readReasons(path string) (reasons, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := reasons{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if lines.Text() == "" {
			continue
		}
		prefix, reason, ok := strings.Cut(lines.Text(), " # ")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s: %q has no reason, want one after #", path, lines.Text())
		}
		found[prefix] = false
	}
	return found, nil
}

func (r reasons) explain(name string) bool {
	explained := false
	for prefix := range r {
		if strings.HasPrefix(name, prefix) {
			r[prefix], explained = true, true
		}
	}
	return explained
}

func (r reasons) unused() error {
	var all []error
	for _, prefix := range slices.Sorted(maps.Keys(r)) {
		if !r[prefix] {
			all = append(all, fmt.Errorf("no block that is not reached begins with %q", prefix))
		}
	}
	return errors.Join(all...)
}
