// The reach program says what the simulation does not reach: the blocks of code that no history runs.
// Usage:
//
//	go run ./hack/reach -profile FILE [-reasons FILE]
//
// It prints a table by package, and each block that is not reached and has no reason, and ends with 1
// if there is one. A reason is a line "PREFIX # REASON": it is that of the blocks whose name begins
// with PREFIX, and a prefix that no such block has is an error. Blocks that pass an error on need no
// reason, and are counted: histories fail accesses at random, and not each of them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/cover"

	"github.com/azuredisk-csi/azuredisk/hack/source"
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
type count struct{ blocks, reached, failures, explained int }

func (c count) row(name string) string {
	reached := 100 * float64(c.reached) / float64(max(c.blocks, 1))
	return fmt.Sprintf("| %s | %d | %.1f %% | %d | %d | %d |", name, c.blocks, reached, c.failures, c.explained,
		c.blocks-c.reached-c.failures-c.explained)
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
			explained := reasons.explain(name)
			switch {
			case passesOn.MatchString(name):
				counts[pkg].failures++
				sum.failures++
			case explained:
				counts[pkg].explained++
				sum.explained++
			default:
				missing = append(missing, name)
			}
		}
	}
	fmt.Fprintln(w, "| package | blocks | reached | passes an error on | has a reason | has none |\n|---|---|---|---|---|---|")
	for _, pkg := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintln(w, counts[pkg].row(pkg))
	}
	fmt.Fprintf(w, "%s\n\n", sum.row("**all**"))
	for _, name := range missing {
		fmt.Fprintln(w, name)
	}
	return len(missing), reasons.unused()
}

// passesOn matches the name of a block that passes an error on.
var passesOn = regexp.MustCompile(`: return (.*[^\w.])?err\b`)

// names are the names of the blocks of a file that are not reached: file, function and first line.
func names(path, file string, blocks []cover.ProfileBlock) ([]string, error) {
	read, err := source.Read(path)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(read.Text), "\n")
	var found []string
	for _, b := range blocks {
		if b.Count == 0 {
			found = append(found, fmt.Sprintf("%s %s: %s", file, enclosing(read, b.StartLine), first(lines, b)))
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
func enclosing(read *source.File, line int) string {
	for _, d := range read.Syntax.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && read.Set.Position(f.Pos()).Line <= line && line <= read.Set.Position(f.End()).Line {
			return source.FuncName(f)
		}
	}
	return "-"
}

// reasons by the prefix of the blocks' names, and whether a block has it.
type reasons map[string]bool

func readReasons(path string) (reasons, error) {
	listed, err := source.Reasons(path)
	found := reasons{}
	for prefix := range listed {
		found[prefix] = false
	}
	return found, err
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
