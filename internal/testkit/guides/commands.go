// Package guides finds the commands in the pages of the documentation, for tests that check their
// arguments.
package guides

import (
	"fmt"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// fence is a block, with its indentation in a list and its language.
var fence = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```$")

// Commands returns every command of the program in the blocks of a page that are marked as sh, or
// are not marked and are shell scripts.
func Commands(program, page string) ([][]string, error) {
	var found [][]string
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		script := strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")
		if (m[2] != "" && m[2] != "sh") || !strings.Contains(script, program+" ") {
			continue
		}
		more, err := commands(program, script)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// commands returns every command of the program in the script, also those within pipes, conditions
// and substitutions, as its arguments without quotes. A variable or substitution in an argument is
// left as it is printed, as in $NAME.
func commands(program, script string) ([][]string, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("read the script: %w\n%s", err, script)
	}
	var found [][]string
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || call.Args[0].Lit() != program {
			return true
		}
		var arguments []string
		for _, word := range call.Args[1:] {
			arguments = append(arguments, text(word.Parts))
		}
		found = append(found, arguments)
		return true
	})
	return found, nil
}

func text(parts []syntax.WordPart) string {
	var all strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			all.WriteString(part.Value)
		case *syntax.SglQuoted:
			all.WriteString(part.Value)
		case *syntax.DblQuoted:
			all.WriteString(text(part.Parts))
		case *syntax.ParamExp:
			all.WriteString("$" + part.Param.Value)
		default:
			all.WriteString("$SUBSTITUTION")
		}
	}
	return all.String()
}
