// The mutation program measures what the tests know: it changes the code in one place, and runs the
// tests of that package, and then those of the packages that import it. A change that no test
// notices is a statement that no test makes. A package is compiled once, with all its mutants: an
// environment variable says which of them is in force. Usage:
//
//	go run ./hack/mutation [-sample 400] [-seed 1] [-own] [-equivalent FILE] [PACKAGE ...]
//
// It prints a table by package, and each survivor with its place, and ends with 1 if one is not in the
// list of equivalent mutants.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/hack/source"
)

// decisions are the packages that are measured by default: what decides, and what hands a volume over.
var decisions = []string{"./internal/plan/...", "./internal/controller/csi/handover", "./internal/controller/keeper",
	"./internal/controller/attachdetach", "./internal/node/csi/...", "./provisioner/azure/internal/batch"}

type options struct {
	root       string
	patterns   []string
	sample     int
	seed       uint64
	workers    int
	own        bool
	equivalent string
}

func main() {
	o := options{root: "."}
	flag.IntVar(&o.sample, "sample", 400, "number of mutants to try; 0 for all")
	flag.Uint64Var(&o.seed, "seed", 1, "seed by which they are chosen")
	flag.IntVar(&o.workers, "workers", 1, "mutants to try at once")
	flag.BoolVar(&o.own, "own", false, "ask the tests of the mutant's own package only")
	flag.StringVar(&o.equivalent, "equivalent", "hack/mutation/equivalent.txt",
		"file with the mutants that behave as the code does, one a line, with the reason after #")
	flag.Parse()
	o.patterns = flag.Args()
	if len(o.patterns) == 0 {
		o.patterns = decisions
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	report, err := measure(ctx, o, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(2)
	}
	report.print(os.Stdout)
	if len(report.survivors()) > 0 {
		os.Exit(1)
	}
}

// measure tries a sample of the mutants of the packages.
func measure(ctx context.Context, o options, progress io.Writer) (*report, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	packages, err := list(root, o.patterns...)
	if err != nil {
		return nil, err
	}
	l, err := newLab(root)
	if err != nil {
		return nil, err
	}
	if o.own {
		clear(l.importers)
	}
	equivalent, err := readEquivalent(filepath.Join(root, o.equivalent))
	if err != nil {
		return nil, err
	}
	mutants, err := all(root, packages)
	if err != nil {
		return nil, err
	}
	r := &report{seed: o.seed, of: len(mutants), equivalent: equivalent}
	sample := chosen(mutants, o.sample, o.seed)
	for len(sample) > 0 {
		pkg := sample[0].Package
		end := slices.IndexFunc(sample, func(m mutant) bool { return m.Package != pkg })
		if end < 0 {
			end = len(sample)
		}
		b, err := l.prepare(ctx, pkg, mutants)
		if err != nil {
			return nil, err
		}
		err = r.try(ctx, o.workers, b, sample[:end], progress)
		if err := errors.Join(err, os.RemoveAll(b.dir)); err != nil {
			return nil, err
		}
		sample = sample[end:]
	}
	return r, nil
}

// chosen returns a random sample, or all mutants if n is 0, sorted by package.
func chosen(mutants []mutant, n int, seed uint64) []mutant {
	sample := slices.Clone(mutants)
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
	if n > 0 && n < len(sample) {
		sample = sample[:n]
	}
	slices.SortFunc(sample, func(a, b mutant) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Number, b.Number))
	})
	return sample
}

// all returns the mutants of packages, in the order of their files.
func all(root string, packages []listed) ([]mutant, error) {
	var mutants []mutant
	for _, p := range packages {
		ofPackage := 0
		for _, f := range p.GoFiles {
			path := filepath.Join(p.Dir, f)
			file, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			found, err := enumerate(p.ImportPath, path, file)
			if err != nil {
				return nil, err
			}
			for _, m := range found {
				ofPackage++
				m.Number = ofPackage
				mutants = append(mutants, m)
			}
		}
	}
	return mutants, nil
}

func newLab(root string) (*lab, error) {
	packages, err := list(root, "./...")
	if err != nil {
		return nil, err
	}
	l := &lab{root: root, importers: map[string][]string{}, dirs: map[string]string{}, random: map[string]bool{}}
	for _, p := range packages {
		l.dirs[p.ImportPath] = p.Dir
		l.random[p.ImportPath] = slices.Contains(append(p.TestImports, p.XTestImports...), "pgregory.net/rapid")
		if !p.hasTests() || !strings.Contains(p.ImportPath, "/internal/") && !strings.Contains(p.ImportPath, "/provisioner") {
			continue // the tests of whole programs take minutes each
		}
		imported := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		slices.Sort(imported)
		for _, of := range slices.Compact(imported) {
			if of != p.ImportPath {
				l.importers[of] = append(l.importers[of], p.ImportPath)
			}
		}
	}
	return l, nil
}

// readEquivalent reads the names of mutants, each with a reason.
func readEquivalent(path string) (map[string]string, error) {
	found, err := source.Reasons(path)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]string{}, nil
	}
	return found, err
}

// report is what was found.
type report struct {
	mu         sync.Mutex
	seed       uint64
	of         int
	equivalent map[string]string
	tried      []tried
}

type tried struct {
	mutant
	result result
}

// try tries the mutants of a package.
func (r *report) try(ctx context.Context, workers int, b *bench, mutants []mutant, progress io.Writer) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(workers, 1))
	for _, m := range mutants {
		group.Go(func() error {
			v, err := b.try(ctx, m)
			if err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.tried = append(r.tried, tried{m, v})
			fmt.Fprintf(progress, "%d\t%s\t%s:%d\t%s\n", len(r.tried), v, m.File, m.Line, m.name())
			return nil
		})
	}
	return group.Wait()
}

// survivors are the mutants that no test notices and that are not known to be equivalent.
func (r *report) survivors() []tried {
	var found []tried
	for _, t := range r.tried {
		if t.result == survived && r.equivalent[t.name()] == "" {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b tried) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return found
}

// score counts the mutants of a package.
type score struct{ own, importers, equivalent, survived int }

func (s score) row(name string) string {
	tried := s.own + s.importers + s.survived
	percent := func(n int) string {
		if tried == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(tried))
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %d | %d |", name, tried, percent(s.own), percent(s.own+s.importers), s.survived,
		s.equivalent)
}

func (r *report) print(w io.Writer) {
	scores, sum := map[string]*score{}, &score{}
	for _, t := range r.tried {
		if scores[t.Package] == nil {
			scores[t.Package] = &score{}
		}
		for _, s := range []*score{scores[t.Package], sum} {
			switch {
			case t.result == killedByOwn:
				s.own++
			case t.result == killedByImporter:
				s.importers++
			case t.result == survived && r.equivalent[t.name()] != "":
				s.equivalent++
			case t.result == survived:
				s.survived++
			}
		}
	}
	fmt.Fprintf(w, "Seed %d, %d of %d mutants tried.\n\n", r.seed, len(r.tried), r.of)
	fmt.Fprintf(w, "| package | mutants | killed by its own tests within %s | killed | survived | equivalent |\n|---|---|---|---|---|---|\n", ownTime)
	names := make([]string, 0, len(scores))
	for name := range scores {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if s := scores[name]; *s != (score{}) {
			short := name[strings.LastIndex(name, "azuredisk/")+len("azuredisk/"):]
			fmt.Fprintln(w, s.row(short))
		}
	}
	fmt.Fprintln(w, sum.row("**all**"))
	for _, t := range r.survivors() {
		fmt.Fprintf(w, "\n%s:%d\n%s\n", t.File, t.Line, t.name())
	}
}
