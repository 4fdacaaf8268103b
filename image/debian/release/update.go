// Package release resolves names of packages to the files of Debian's newest releases, and verifies
// Debian's signatures on the way. Only the program that writes the lock file uses it.
package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ulikunitz/xz"

	"github.com/azuredisk-csi/azuredisk/image/debian"
)

// maxIndex is more than any index of Debian has.
const maxIndex = 100 << 20

// Candidates returns the newest versions of the named packages and of the libraries that they
// depend on, for each architecture. It accepts only releases that are signed by one of the keys.
func Candidates(ctx context.Context, from debian.Fetcher, keys openpgp.KeyRing, names, architectures []string,
	now time.Time) (debian.Lock, error) {
	lock := debian.Lock{Taken: now.UTC().Format(debian.TakenLayout), Packages: map[string][]debian.Package{}}
	indexes := map[string]index{}
	for _, a := range debian.Archives {
		base := fmt.Sprintf("%s/%s/dists/%s/", strings.TrimRight(from.Mirror, "/"), a.Name, a.Suite)
		signed, err := from.Get(ctx, base+"InRelease", maxIndex)
		if err != nil {
			return debian.Lock{}, fmt.Errorf("download %sInRelease: %w", base, err)
		}
		released, err := verifyRelease(signed, keys)
		if err != nil {
			return debian.Lock{}, fmt.Errorf("verify %sInRelease: %w", base, err)
		}
		if released.codename != a.Suite {
			return debian.Lock{}, fmt.Errorf("%sInRelease is that of %q, want %q", base, released.codename, a.Suite)
		}
		for _, arch := range architectures {
			if indexes[arch] == nil {
				indexes[arch] = index{}
			}
			if err := addIndex(ctx, from, indexes[arch], a.Name, base, fmt.Sprintf("main/binary-%s/Packages.xz", arch),
				released); err != nil {
				return debian.Lock{}, err
			}
		}
	}
	for _, arch := range architectures {
		var err error
		if lock.Packages[arch], err = indexes[arch].withLibraries(names); err != nil {
			return debian.Lock{}, fmt.Errorf("choose the packages for %s: %w", arch, err)
		}
	}
	return lock, nil
}

func addIndex(ctx context.Context, from debian.Fetcher, to index, archive, base, path string, released signedRelease) error {
	want, ok := released.files[path]
	if !ok {
		return fmt.Errorf("%sInRelease does not list %s", base, path)
	}
	data, err := from.Get(ctx, base+path, want.size)
	if err != nil {
		return fmt.Errorf("download %s%s: %w", base, path, err)
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != want.sha256 {
		return fmt.Errorf("%s%s has %d bytes with SHA-256 %x, want %d bytes with %s as InRelease says; the mirror may be in the middle of an update",
			base, path, len(data), got, want.size, want.sha256)
	}
	plain, err := xz.NewReader(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("decompress %s%s: %w", base, path, err)
	}
	return to.add(archive, plain)
}
