package debian

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Where archives are read from unless a setting says otherwise.
const (
	DefaultMirror   = "https://deb.debian.org"
	DefaultSnapshot = "https://snapshot.debian.org/archive"
)

// Fetcher downloads packages and keeps them.
type Fetcher struct {
	// Mirror is the URL below which the archives debian and debian-security are.
	Mirror string
	// Snapshot is the URL of the archive of old packages. It is asked for a package that the mirror
	// no longer has.
	Snapshot string
	// Cache is the folder in which packages are kept, by their hashes.
	Cache string
	// Client sends the requests.
	Client *http.Client
	// Progress receives a line for each download. It may be nil.
	Progress func(format string, args ...any)
}

// Fetch returns the content of a package of a lock that was taken at that time.
func (f Fetcher) Fetch(ctx context.Context, p Package, taken string) ([]byte, error) {
	cached := filepath.Join(f.Cache, p.SHA256+".deb")
	if data, err := os.ReadFile(cached); err == nil && f.check(p, data) == nil {
		return data, nil
	}
	if f.Progress != nil {
		f.Progress("downloading %s", filepath.Base(p.Path))
	}
	urls := []string{
		fmt.Sprintf("%s/%s/%s", strings.TrimRight(f.Mirror, "/"), p.Archive, p.Path),
		fmt.Sprintf("%s/%s/%s/%s", strings.TrimRight(f.Snapshot, "/"), p.Archive, taken, p.Path),
	}
	var faults []error
	for _, url := range urls {
		data, err := f.Get(ctx, url, p.Size)
		if err == nil {
			err = f.check(p, data)
		}
		if err == nil {
			return data, f.keep(cached, data)
		}
		faults = append(faults, fmt.Errorf("%s: %w", url, err))
	}
	return nil, fmt.Errorf("cannot download %s %s; set DEBIAN_MIRROR to a mirror of Debian that this machine reaches, or raise the versions with `make image-lock`:\n%w",
		p.Name, p.Version, errors.Join(faults...))
}

// FetchAll puts the packages of all architectures into the cache. It downloads four at a time.
func (f Fetcher) FetchAll(ctx context.Context, lock Lock) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, architecture := range slices.Sorted(maps.Keys(lock.Packages)) {
		for _, p := range lock.Packages[architecture] {
			group.Go(func() error {
				_, err := f.Fetch(ctx, p, lock.Taken)
				return err
			})
		}
	}
	return group.Wait()
}

func (f Fetcher) check(p Package, data []byte) error {
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != p.SHA256 {
		return fmt.Errorf("got a file of %d bytes with SHA-256 %x, want %d bytes with %s", len(data), got, p.Size, p.SHA256)
	}
	return nil
}

// Get downloads at most limit bytes and one more, which tells that the file is too long.
func (f Fetcher) Get(ctx context.Context, url string, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := f.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, limit+1))
}

func (f Fetcher) keep(file string, data []byte) error {
	if err := os.MkdirAll(f.Cache, 0o755); err != nil {
		return err
	}
	partial, err := os.CreateTemp(f.Cache, "partial-")
	if err != nil {
		return err
	}
	defer os.Remove(partial.Name())
	if _, err := partial.Write(data); err != nil {
		return errors.Join(err, partial.Close())
	}
	if err := partial.Close(); err != nil {
		return err
	}
	return os.Rename(partial.Name(), file)
}

// NewFetcher returns a Fetcher with the settings in DEBIAN_MIRROR and DEBIAN_SNAPSHOT, or with the
// defaults.
func NewFetcher(cache string, progress func(format string, args ...any)) Fetcher {
	return Fetcher{
		Mirror:   cmp.Or(os.Getenv("DEBIAN_MIRROR"), DefaultMirror),
		Snapshot: cmp.Or(os.Getenv("DEBIAN_SNAPSHOT"), DefaultSnapshot),
		Cache:    cache,
		Client:   http.DefaultClient,
		Progress: progress,
	}
}
