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

// Wanted are packages to choose, for each of some architectures.
type Wanted struct {
	Names, Architectures []string
}

// Candidates returns the newest versions of the wanted packages and of the libraries that they
// depend on. It accepts only releases that are signed by one of the keys.
func Candidates(ctx context.Context, from debian.Fetcher, keys openpgp.KeyRing, want Wanted, now time.Time) (debian.Lock, error) {
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
		for _, arch := range want.Architectures {
			if indexes[arch] == nil {
				indexes[arch] = index{}
			}
			if err := (suite{released, a.Name, base}).addTo(ctx, from, indexes[arch], arch); err != nil {
				return debian.Lock{}, err
			}
		}
	}
	for _, arch := range want.Architectures {
		var err error
		if lock.Packages[arch], err = indexes[arch].withLibraries(want.Names); err != nil {
			return debian.Lock{}, fmt.Errorf("choose the packages for %s: %w", arch, err)
		}
	}
	return lock, nil
}

// suite is the release of an archive at a URL.
type suite struct {
	signedRelease
	archive, base string
}

// addTo reads the packages of an architecture.
func (s suite) addTo(ctx context.Context, from debian.Fetcher, to index, architecture string) error {
	base, path := s.base, fmt.Sprintf("main/binary-%s/Packages.xz", architecture)
	want, ok := s.files[path]
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
	return to.add(s.archive, plain)
}
