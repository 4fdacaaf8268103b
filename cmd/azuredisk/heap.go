package main

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// heapShare is the percentage of the container's memory that Go may use before it collects
	// garbage however little the heap has grown. The rest is the program's text, and what is allocated
	// while garbage is collected: docs/explanation/performance.md has the measured peaks.
	heapShare = 60
	// memoryMax is the file in which the kernel shows the memory limit of the container, in bytes,
	// or "max" for none (cgroup v2).
	memoryMax = "/sys/fs/cgroup/memory.max"
)

// limitHeap makes the garbage collector run more often before the program reaches the memory limit
// of the container, at which the kernel would kill it. The environment variable GOMEMLIMIT takes
// precedence.
func limitHeap() {
	if limit := containerLimit(memoryMax); limit > 0 && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(limit / 100 * heapShare)
	}
}

// containerLimit reads the memory limit of the container in bytes; 0 if it has none.
func containerLimit(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0 // not in a container, or another version of cgroups: then there is no such limit
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // "max"
	}
	return limit
}
