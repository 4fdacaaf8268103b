// The mutation program measures what the tests know: it changes the code in one place, and runs the
// tests of that package, and then those of the packages that import it. A change that no test
// notices is a statement that no test makes. Usage:
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

	"github.com/azuredisk-csi/azuredisk/hack/source"
)

// decisions are the packages that are measured by default: what decides, and what hands a volume over.
var decisions = []string{"./internal/plan/...", "./internal/controller/csi/handover", "./internal/controller/keeper",
	"./internal/controller/attachdetach", "./internal/node/csi/...", "./provisioner/azure/batch"}

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
	flag.IntVar(&o.sample, "sample", 400, "number of viable mutants to try; 0 for all")
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
	r := &report{seed: o.seed, of: len(mutants), sample: o.sample, equivalent: equivalent}
	if err := l.greenWithout(ctx, mutants); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(o.seed, 0))
	random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	return r, r.try(ctx, o, l, mutants, progress)
}

// all returns the mutants of packages, in the order of their files.
func all(root string, packages []listed) ([]mutant, error) {
	var mutants []mutant
	for _, p := range packages {
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
			mutants = append(mutants, found...)
		}
	}
	return mutants, nil
}

func newLab(root string) (*lab, error) {
	packages, err := list(root, "./...")
	if err != nil {
		return nil, err
	}
	l := &lab{root: root, importers: map[string][]string{}, dirs: map[string]string{}, slow: map[string]bool{}}
	for _, p := range packages {
		l.dirs[p.ImportPath] = p.Dir
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

// greenWithout returns an error if the own tests of a package fail without a mutant: every mutant of it
// would count as killed. It notes the packages whose tests take longer than ownTime.
func (l *lab) greenWithout(ctx context.Context, mutants []mutant) error {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	checked := map[string]bool{}
	var failures []error
	for _, m := range mutants {
		if checked[m.Package] {
			continue
		}
		checked[m.Package] = true
		ended, err := l.test(ctx, dir, "", m.Package, ownTime)
		if ended == late {
			l.slow[m.Package] = true
			ended, err = l.test(ctx, dir, "", m.Package, importersTime)
		}
		switch {
		case err != nil:
			return err
		case ended != passed:
			failures = append(failures, fmt.Errorf("the tests of %s fail, or take more than %s", m.Package, importersTime))
		}
	}
	return errors.Join(failures...)
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
	of, sample int
	equivalent map[string]string
	tried      []tried
}

type tried struct {
	mutant
	result result
}

// try tries mutants until the sample of viable ones is complete.
func (r *report) try(ctx context.Context, o options, l *lab, mutants []mutant, progress io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan mutant)
	var wg sync.WaitGroup
	for range max(o.workers, 1) {
		wg.Go(func() {
			for m := range next {
				v, err := l.try(ctx, m)
				if err != nil {
					cancel(err)
					return
				}
				r.add(tried{m, v}, progress)
			}
		})
	}
	for _, m := range mutants {
		if r.sample > 0 && r.viable() >= r.sample {
			break
		}
		select {
		case next <- m:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

func (r *report) add(t tried, progress io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sample > 0 && r.viableNow() >= r.sample {
		return // it was begun before the sample was complete
	}
	r.tried = append(r.tried, t)
	if t.result != notViable {
		fmt.Fprintf(progress, "%d\t%s\t%s:%d\t%s => %s\n", len(r.tried), t.result, t.File, t.Line, t.Was, t.Is)
	}
}

func (r *report) viable() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.viableNow()
}

func (r *report) viableNow() int {
	n := 0
	for _, t := range r.tried {
		if t.result != notViable {
			n++
		}
	}
	return n
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

// score counts the viable mutants of a package.
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
	fmt.Fprintf(w, "Seed %d, %d of %d mutants tried.\n\n", r.seed, r.viable(), r.of)
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
