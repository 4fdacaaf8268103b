// Command lock chooses the packages of the driver's image, or of the virtual machine of `make
// vm-test`, and writes the lock file: the newest versions of Debian's releases, after it has
// verified their signatures, and only the packages that files are taken from.
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
	"github.com/azuredisk-csi/azuredisk/image/testvm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 4 || contents[os.Args[1]].used == nil {
		fmt.Fprintln(os.Stderr, "usage: lock image|testvm LOCKFILE CACHE")
		os.Exit(2)
	}
	if err := run(ctx, contents[os.Args[1]], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// content is what packages are chosen for.
type content struct {
	named, architectures []string
	// used returns the packages of the lock that files are taken from.
	used func(ctx context.Context, from debian.Fetcher, lock debian.Lock, architecture string) ([]debian.Package, error)
}

var contents = map[string]content{
	"image": {image.Named, image.Platforms(),
		func(ctx context.Context, from debian.Fetcher, lock debian.Lock, architecture string) ([]debian.Package, error) {
			tools, err := image.FetchTools(ctx, from, lock, architecture)
			return tools.Packages, err
		}},
	"testvm": {testvm.Named, []string{testvm.Architecture},
		func(ctx context.Context, from debian.Fetcher, lock debian.Lock, _ string) ([]debian.Package, error) {
			vm, err := testvm.Fetch(ctx, from, lock)
			return vm.Packages, err
		}},
}

func run(ctx context.Context, of content, file, cache string) error {
	from := debian.NewFetcher(cache, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	keys, err := release.Keys()
	if err != nil {
		return err
	}
	lock, err := release.Candidates(ctx, from, keys, release.Wanted{Names: of.named, Architectures: of.architectures}, time.Now())
	if err != nil {
		return err
	}
	for _, architecture := range of.architectures {
		if lock.Packages[architecture], err = of.used(ctx, from, lock, architecture); err != nil {
			return err
		}
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
