package scale

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// row of the page: what was measured in a cluster of a size.
type row struct {
	nodes int
	cells []string
}

// writePage writes a table of all results in out/bench-scale, by the size of the cluster.
func writePage(t testing.TB) {
	t.Helper()
	var page strings.Builder
	table(&page, "Scheduler extender: one request, p50 / p99 in ms (mean in the server, CPU), and requests a second of 4 clients",
		[]string{"start-up, s (CPU, API server's CPU)", "memory now / peak, MiB", "filter, all nodes", "4 clients",
			"filter, 100 nodes", "prioritize, all nodes", "4 clients", "prioritize, 100 nodes"},
		rows(t, "extender", func(r extenderResult) row {
			asked := func(verb string, names, clients int) string {
				for _, q := range r.Requests {
					if q.Verb == verb && q.Names == names && q.Clients == clients {
						if clients > 1 {
							return fmt.Sprintf("%.0f/s", q.PerSecond)
						}
						return fmt.Sprintf("%.2f / %.2f (%.2f, %.2f)", q.P50, q.P99, q.ServerMean, q.CPU)
					}
				}
				return "–"
			}
			return row{r.Nodes, []string{
				fmt.Sprintf("%.1f (%.1f, %.1f)", r.StartUpSeconds, r.StartUpCPU, r.StartUpAPIServerCPU),
				fmt.Sprintf("%d / %d", r.MemoryMiB, r.PeakMemoryMiB),
				asked("filter", r.Nodes, 1), asked("filter", r.Nodes, 4), asked("filter", 100, 1),
				asked("prioritize", r.Nodes, 1), asked("prioritize", r.Nodes, 4), asked("prioritize", 100, 1),
			}}
		}))
	table(&page, "Controller",
		[]string{"start", "leads after, s", "rests after, s", "CPU, s", "memory now / peak, MiB", "writes", "conflicts",
			"calls to Azure"},
		rows(t, "controller", func(r controllerResult) row { return row{r.Nodes, started("first", r.First)} }),
		rows(t, "controller", func(r controllerResult) row { return row{r.Nodes, started("again", r.Second)} }),
		rows(t, "controller", func(r controllerResult) row {
			return row{r.Nodes, []string{"a minute at rest", "", "", fmt.Sprintf("%.1f", r.Steady.CPUSeconds), "",
				fmt.Sprint(r.Steady.Writes), fmt.Sprint(conflicts(r.Steady.traffic)), fmt.Sprint(sumOf(r.Steady.Azure))}}
		}))
	table(&page, "Nodes that lose their power: time until the controller knows",
		[]string{"one node, least, s", "one node, longest, s", "nodes at once", "all of them, s"},
		rows(t, "controller", func(r controllerResult) row {
			alone := r.Loss.AloneSeconds
			return row{r.Nodes, []string{
				fmt.Sprintf("%.1f", slices.Min(alone)), fmt.Sprintf("%.1f", slices.Max(alone)), fmt.Sprint(r.Loss.Together),
				fmt.Sprintf("%.1f", r.Loss.TogetherSeconds),
			}}
		}))
	file := filepath.Join(tree.Root(), "out", "bench-scale", "scale.md")
	must(t, os.WriteFile(file, []byte(page.String()), 0o644))
	fmt.Printf("%s:\n\n%s", file, page.String())
}

func started(which string, s startResult) []string {
	return []string{
		which, fmt.Sprintf("%.1f", s.LeaderSeconds), fmt.Sprintf("%.1f", s.RestSeconds), fmt.Sprintf("%.1f", s.CPUSeconds),
		fmt.Sprintf("%d / %d", s.MemoryMiB, s.PeakMemoryMiB), fmt.Sprint(s.Writes), fmt.Sprint(conflicts(s.traffic)),
		fmt.Sprint(sumOf(s.Azure)),
	}
}

func conflicts(n traffic) int {
	count := 0
	for request, times := range n.API {
		if strings.HasSuffix(request, " 409") {
			count += times
		}
	}
	return count
}

func sumOf(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// rows reads the results of a program.
func rows[T any](t testing.TB, program string, render func(T) row) []row {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tree.Root(), "out", "bench-scale", program+"-*.json"))
	must(t, err)
	var all []row
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must(t, err)
		var result T
		must(t, json.Unmarshal(raw, &result))
		all = append(all, render(result))
	}
	return all
}

func table(page *strings.Builder, title string, columns []string, groups ...[]row) {
	fmt.Fprintf(page, "## %s\n\n| nodes | %s |\n|%s\n", title, strings.Join(columns, " | "),
		strings.Repeat("---|", len(columns)+1))
	all := slices.Concat(groups...)
	slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(a.nodes, b.nodes) })
	for _, r := range all {
		fmt.Fprintf(page, "| %d | %s |\n", r.nodes, strings.Join(r.cells, " | "))
	}
	page.WriteString("\n")
}
