package aks

import (
	_ "embed"
	"regexp"
	"strconv"
)

//go:embed README.md
var facts string

// portRow is a row of the table of ports: the port, who takes it, and what has it here.
var portRow = regexp.MustCompile("(?m)^\\| `([0-9]+)` \\| [^|]+ \\| a listener \\|")

// Ports are the host ports that the table of README.md gives to a listener on each node, because
// what takes them on AKS does not run here.
func Ports() []int {
	var ports []int
	for _, row := range portRow.FindAllStringSubmatch(facts, -1) {
		port, err := strconv.Atoi(row[1])
		if err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}
