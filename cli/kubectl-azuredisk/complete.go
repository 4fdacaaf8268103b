package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// completeTimeout bounds the wait of a shell.
const completeTimeout = 3 * time.Second

// complete offers kinds, and then the names of objects of the kind.
func (s *settings) complete(of subjects) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		kind, _, both := strings.Cut(begun, "/")
		switch {
		case len(args) == 0 && both:
			var words []string
			for _, name := range s.names(cmd.Context(), of.kinds[strings.ToLower(kind)]) {
				words = append(words, kind+"/"+name)
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 0:
			return of.offered, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 && !strings.Contains(args[0], "/"):
			return s.names(cmd.Context(), of.kinds[strings.ToLower(args[0])]), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of the objects of a kind, or none if they cannot be read.
func (s *settings) names(ctx context.Context, kind explain.Kind) []string {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	reader, _, err := s.reader()
	if err != nil {
		return nil
	}
	namespace := ""
	if !kind.ClusterScoped() {
		if namespace, _, err = s.kube.ToRawKubeConfigLoader().Namespace(); err != nil {
			return nil
		}
	}
	names, _ := collect.Names(ctx, reader, kind, namespace)
	slices.Sort(names)
	return slices.Compact(names)
}
