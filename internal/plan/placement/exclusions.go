package placement

import (
	"maps"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/plan/operation"
)

// exclusions are the nodes that take no replica, by the reason.
type exclusions map[string][]string

func (e exclusions) add(reason, node string) { e[reason] = append(e[reason], node) }

// fewNodes is how many nodes are named for one reason. How many others there are is not said: in a
// large cluster that changes all the time.
const fewNodes = 5

// String is the same for the same exclusions, whatever the order in which they were found, and
// bounded.
func (e exclusions) String() string {
	if len(e) == 0 {
		return "no node can take another replica: there is no further node"
	}
	parts := make([]string, 0, len(e))
	for _, reason := range slices.Sorted(maps.Keys(e)) {
		nodes := slices.Sorted(slices.Values(e[reason]))
		named := strings.Join(nodes[:min(len(nodes), fewNodes)], ", ")
		if len(nodes) > fewNodes {
			named += " and others"
		}
		parts = append(parts, named+": "+reason)
	}
	return operation.Shorten("no node can take another replica: " + strings.Join(parts, "; "))
}
