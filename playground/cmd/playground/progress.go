package main

import (
	"fmt"
	"os"
	"time"
)

// newProgress returns a function that prints lines to standard error, each with
// the seconds since now.
func newProgress() func(format string, args ...any) {
	start := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
