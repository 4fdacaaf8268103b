package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/controlplane"
)

const (
	// cutTable is the table of a node's packet filter that keeps the API server away.
	cutTable = "inet playground-cut"
	// uncut removes the table, if it is there.
	uncut = "table " + cutTable + "\ndelete table " + cutTable + "\n"
)

// CutFromAPIServer drops all packets between a node, its pods included, and the API server. The
// rest of the network works: probes reach the node. restore lets the packets pass again, and is
// idempotent.
func (c *Cluster) CutFromAPIServer(ctx context.Context, node string) (restore func(context.Context) error, err error) {
	rules := uncut + "table " + cutTable + " {\n"
	for _, hook := range []string{"input", "output", "forward"} {
		rules += fmt.Sprintf("chain %[1]s {\ntype filter hook %[1]s priority filter\nip daddr %[2]s tcp dport %[3]d drop\nip saddr %[2]s tcp sport %[3]d drop\n}\n",
			hook, c.Plan.ControlPlane(), controlplane.APIPort)
	}
	restore = func(ctx context.Context) error { return c.filter(ctx, node, uncut) }
	return restore, c.filter(ctx, node, rules+"}\n")
}

// filter gives rules to a node's packet filter.
func (c *Cluster) filter(ctx context.Context, node, rules string) error {
	enter, err := c.Enter(ctx, node)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, enter[0], append(enter[1:], "nft", "--file", "-")...)
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("change the packet filter of %s: %w: %s", node, err, bytes.TrimSpace(out))
	}
	return nil
}
