// The program has one module besides Go's library.
package main

import "golang.org/x/sync/errgroup"

func main() {
	var group errgroup.Group
	_ = group.Wait()
}
