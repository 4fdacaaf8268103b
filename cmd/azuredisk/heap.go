package main

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// controllerHeapGrowth and schedulerHeapGrowth are by how many percent the heap may grow until
	// the garbage is collected. Go's default of 100 doubles the peak. The extender keeps less, and
	// answers requests all the time.
	controllerHeapGrowth, schedulerHeapGrowth = 30, 50
	// heapShare is the percentage of the container's memory that Go may use before it collects
	// garbage however little the heap has grown. The rest is for what Go does not count, and for
	// the time that a collection takes.
	heapShare = 90
	// memoryMax is the file in which the kernel shows the memory limit of the container, in bytes,
	// or "max" for none (cgroup v2).
	memoryMax = "/sys/fs/cgroup/memory.max"
)

// limitHeap makes the garbage collector run more often than by default, and still more often before
// the container reaches its memory limit, at which the kernel would kill it. growth is in percent.
// The environment variables GOGC and GOMEMLIMIT take precedence.
func limitHeap(growth int) {
	const byDefault = 100
	if set := debug.SetGCPercent(growth); set != byDefault {
		debug.SetGCPercent(set)
	}
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
