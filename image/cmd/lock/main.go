// Command lock chooses the packages of the driver's image and writes the lock file: the newest versions of Debian's releases, after it
// has verified their signatures, and only the packages that files of the image come from.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/azuredisk-csi/azuredisk/image"
	"github.com/azuredisk-csi/azuredisk/image/debian"
	"github.com/azuredisk-csi/azuredisk/image/debian/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: lock LOCKFILE CACHE")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, cache string) error {
	from := debian.NewFetcher(cache, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	keys, err := release.Keys()
	if err != nil {
		return err
	}
	lock, err := release.Candidates(ctx, from, keys, image.Named, image.Platforms(), time.Now())
	if err != nil {
		return err
	}
	for _, architecture := range image.Platforms() {
		tools, err := image.FetchTools(ctx, from, lock, architecture)
		if err != nil {
			return err
		}
		lock.Packages[architecture] = tools.Packages
	}
	// The time alone is no change.
	if before, err := readLock(file); err == nil && equal(before, lock) {
		fmt.Println("the packages are up to date")
		return nil
	}
	data, err := lock.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func readLock(file string) (debian.Lock, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return debian.Lock{}, err
	}
	return debian.ParseLock(data)
}

func equal(a, b debian.Lock) bool {
	if len(a.Packages) != len(b.Packages) {
		return false
	}
	for architecture := range a.Packages {
		if !slices.Equal(a.Packages[architecture], b.Packages[architecture]) {
			return false
		}
	}
	return true
}
