package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/azuredisk-csi/azuredisk/image"
	"github.com/azuredisk-csi/azuredisk/image/debian"
	"github.com/azuredisk-csi/azuredisk/image/rootfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fetcher keeps packages where `make image` does.
func fetcher(t *testing.T) debian.Fetcher {
	t.Helper()
	cache := os.Getenv("AZUREDISK_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		must(t, err)
		cache = filepath.Join(home, ".cache", "azuredisk")
	}
	return debian.NewFetcher(filepath.Join(cache, "debian"), t.Logf)
}

func lock(t *testing.T) debian.Lock {
	t.Helper()
	lock, err := debian.ParseLock(image.LockText)
	must(t, err)
	return lock
}

var fetched = map[string]image.Tools{}

// tools fetches the tools of an architecture once for all tests.
func tools(t *testing.T, architecture string) image.Tools {
	t.Helper()
	if there, ok := fetched[architecture]; ok {
		return there
	}
	tools, err := image.FetchTools(t.Context(), fetcher(t), lock(t), architecture)
	must(t, err)
	fetched[architecture] = tools
	return tools
}

// program builds a small static program, which stands for the driver.
func program(t *testing.T, architecture string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", file, "./testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build for %s: %v\n%s", architecture, err, out)
	}
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}

// driver is the program with texts for its licences.
func driver(t *testing.T, architecture string) image.Driver {
	t.Helper()
	return image.Driver{
		Program: program(t, architecture),
		Licence: []byte("the licence"),
		Notices: []byte("the notices"),
	}
}

var version = image.Version{
	Name:     "1.2.3",
	Revision: "abc",
	Created:  time.Unix(1700000000, 0),
	Home:     "https://example.com/azuredisk",
}

// write makes the layout of all platforms from nothing and returns its files by path.
func write(t *testing.T, dir string) map[string]string {
	t.Helper()
	var variants []image.Variant
	for _, architecture := range image.Platforms() {
		tools, err := image.FetchTools(t.Context(), fetcher(t), lock(t), architecture)
		must(t, err)
		variant, err := image.NewVariant(tools, driver(t, architecture), version)
		must(t, err)
		variants = append(variants, variant)
	}
	must(t, image.WriteLayout(dir, variants, version))
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		files[strings.TrimPrefix(name, dir)] = string(data)
		return err
	}))
	return files
}

func TestTheLayoutIsValidAndTheSameEachTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	first := write(t, dir)
	index, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1+len(image.Platforms()) {
		t.Fatalf("the layout has %d entries, want the index and a bill of materials for each platform", len(manifest.Manifests))
	}
	if tag := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; tag != version.Name {
		t.Errorf("got the tag %q, want %q", tag, version.Name)
	}
	images, err := index.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	must(t, validate.Index(images))
	list, err := images.IndexManifest()
	must(t, err)
	var platforms []string
	for _, descriptor := range list.Manifests {
		platforms = append(platforms, descriptor.Platform.Architecture)
		made, err := images.Image(descriptor.Digest)
		must(t, err)
		config, err := made.ConfigFile()
		must(t, err)
		if config.Architecture != descriptor.Platform.Architecture || config.OS != "linux" ||
			config.Config.User != "65532:65532" ||
			config.Config.Labels["org.opencontainers.image.version"] != version.Name ||
			config.Config.Labels["org.opencontainers.image.source"] != version.Home ||
			!slices.Equal(config.Config.Entrypoint, []string{"/azuredisk"}) {
			t.Errorf("%s: got the configuration %+v", descriptor.Platform.Architecture, config)
		}
	}
	if !slices.Equal(platforms, image.Platforms()) {
		t.Errorf("got the platforms %v, want %v", platforms, image.Platforms())
	}

	second := write(t, dir)
	if len(first) != len(second) {
		t.Errorf("the second layout has %d files, the first %d", len(second), len(first))
	}
	for name, content := range first {
		if second[name] != content {
			t.Errorf("%s differs between two builds", name)
		}
	}
}

func TestADriverThatDoesNotFitIsRefused(t *testing.T) {
	amd64 := tools(t, "amd64")
	for name, c := range map[string]struct {
		program []byte
		want    string
	}{
		"for another architecture": {program(t, "arm64"), "a program for EM_AARCH64, want EM_X86_64"},
		"no program":               {[]byte("#!/bin/sh\n"), "not a static program"},
		"linked dynamically":       {amd64.Tree["usr/sbin/mke2fs"].Data, "CGO_ENABLED=0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := image.NewVariant(amd64, image.Driver{Program: c.program}, version)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := image.FetchTools(t.Context(), fetcher(t), lock(t), "riscv64"); err == nil ||
		!strings.Contains(err.Error(), `"riscv64"; want one of [amd64 arm64]`) {
		t.Errorf("got the error %v, want one with the architectures that there are", err)
	}
}

func TestALibraryThatNoPackageHasIsNamed(t *testing.T) {
	without := lock(t)
	without.Packages["amd64"] = slices.DeleteFunc(slices.Clone(without.Packages["amd64"]),
		func(p debian.Package) bool { return p.Name == "libuuid1" })
	_, err := image.FetchTools(t.Context(), fetcher(t), without, "amd64")
	for _, want := range []string{"libuuid.so.1", "make image-lock"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
}

func TestPackagesThatCannotBeDownloadedAreNamed(t *testing.T) {
	offline := debian.Fetcher{
		Mirror:   "http://127.0.0.1:1",
		Snapshot: "http://127.0.0.1:1",
		Cache:    t.TempDir(),
		Client:   http.DefaultClient,
	}
	_, err := image.FetchTools(t.Context(), offline, lock(t), "amd64")
	if err == nil || !strings.Contains(err.Error(), "DEBIAN_MIRROR") || !strings.Contains(err.Error(), "base-files") {
		t.Errorf("got the error %v, want one with the package and the setting", err)
	}
}

// TestTheImageHasWhatTheNodePlugInRuns looks for the names of programs in the calls of
// provisioner/host.
func TestTheImageHasWhatTheNodePlugInRuns(t *testing.T) {
	files, err := filepath.Glob("../provisioner/host/*.go")
	must(t, err)
	// f.run(ctx, "blkid", …), f.runToEnd(ctx, device, "xfs_admin", …), const command = "e2fsck"
	call := regexp.MustCompile(`(?:\.run(?:ToEnd)?\(ctx, (?:[a-z]+, )?|const command = )"([a-z0-9_.]*[a-z0-9])"`)
	names := map[string]bool{
		"mkfs.ext2":  true,
		"mkfs.ext3":  true,
		"mkfs.ext4":  true,
		"mkfs.xfs":   true,
		"mkfs.btrfs": true,
		"sh":         true,
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range call.FindAllStringSubmatch(string(source), -1) {
			names[match[1]] = true
		}
	}
	for _, known := range []string{"blkid", "btrfs", "btrfstune", "e2fsck", "resize2fs", "tune2fs", "unshare", "xfs_admin",
		"xfs_growfs"} {
		if !names[known] {
			t.Errorf("provisioner/host was not found to run %s; is the pattern of this test out of date?", known)
		}
	}
	tree := tools(t, "amd64").Tree
	for name := range names {
		if _, ok := tree["usr/sbin/"+name]; ok {
			continue
		}
		if _, ok := tree["usr/bin/"+name]; !ok {
			t.Errorf("provisioner/host runs %s, which the image does not have", name)
		}
	}
}

// unpack writes the layers to a folder.
func unpack(t *testing.T, made v1.Image, dir string) {
	t.Helper()
	layers, err := made.Layers()
	must(t, err)
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		must(t, err)
		for r := tar.NewReader(content); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			name := filepath.Join(dir, header.Name)
			switch header.Typeflag {
			case tar.TypeDir:
				must(t, os.MkdirAll(name, 0o755))
			case tar.TypeSymlink:
				must(t, os.Symlink(header.Linkname, name))
			default:
				data, err := io.ReadAll(r)
				must(t, err)
				must(t, os.WriteFile(name, data, os.FileMode(header.Mode)))
			}
		}
	}
}

// TestEveryLibraryIsInTheImage looks at the image and not at how it is made: each program and
// library in it, on each platform.
func TestEveryLibraryIsInTheImage(t *testing.T) {
	for _, platform := range rootfs.Platforms {
		t.Run(platform.Architecture, func(t *testing.T) {
			variant, err := image.NewVariant(tools(t, platform.Architecture), driver(t, platform.Architecture), version)
			must(t, err)
			dir := t.TempDir()
			unpack(t, variant.Image, dir)
			programs := 0
			must(t, filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() {
					return err
				}
				data, err := os.ReadFile(name)
				if err != nil || !rootfs.IsProgram(data) {
					return err
				}
				programs++
				needed, err := rootfs.Needs(platform, data)
				must(t, err)
				for _, needs := range needed {
					if !there(dir, needs) {
						t.Errorf("%s needs %s, which is not in the image", strings.TrimPrefix(name, dir), needs)
					}
				}
				return nil
			}))
			if programs < 40 {
				t.Errorf("the image has %d programs and libraries, want at least 40", programs)
			}
		})
	}
}

// TestTheImageHasTheLicenceOfAllThatIsInIt looks at the bill of materials: each package of Debian has
// its licence where the bill says, and the driver has its own and those of its modules.
func TestTheImageHasTheLicenceOfAllThatIsInIt(t *testing.T) {
	for _, architecture := range image.Platforms() {
		variant, err := image.NewVariant(tools(t, architecture), driver(t, architecture), version)
		must(t, err)
		dir := t.TempDir()
		unpack(t, variant.Image, dir)
		named := regexp.MustCompile(`"The licence is in /([^ ]+) of the image`).FindAllSubmatch(variant.SBOM, -1)
		if len(named) != len(tools(t, architecture).Packages) || len(named) < 10 {
			t.Errorf("linux/%s: got %d licences of packages, want one for each of %d packages", architecture, len(named),
				len(tools(t, architecture).Packages))
		}
		for _, file := range named {
			if !there(dir, string(file[1])) {
				t.Errorf("linux/%s: got no file %s, want the licence", architecture, file[1])
			}
		}
		for name, want := range map[string]string{"LICENSE": "the licence", "THIRD-PARTY-NOTICES": "the notices"} {
			got, err := os.ReadFile(filepath.Join(dir, "usr/share/doc/azuredisk", name))
			if err != nil || string(got) != want {
				t.Errorf("linux/%s: %s: got %q, %v, want %q", architecture, name, got, err, want)
			}
		}
	}
}

// there follows the links of a path below a root.
func there(root, name string) bool {
	for range 40 {
		at, link := "", ""
		for _, element := range strings.Split(strings.Trim(name, "/"), "/") {
			at = path.Join(at, element)
			target, err := os.Readlink(filepath.Join(root, at))
			if err != nil {
				continue
			}
			link = at
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(at), target)
			}
			name = path.Join(target, strings.TrimPrefix(strings.Trim(name, "/"), at))
			break
		}
		if link == "" {
			_, err := os.Lstat(filepath.Join(root, at))
			return err == nil
		}
	}
	return false
}

// TestTheToolsOfTheImageRun makes, checks and changes each filesystem in the root filesystem of the
// image, as the node plug-in does.
func TestTheToolsOfTheImageRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test changes its root and needs root")
	}
	variant, err := image.NewVariant(tools(t, "amd64"), driver(t, "amd64"), version)
	must(t, err)
	root := t.TempDir()
	unpack(t, variant.Image, root)
	must(t, os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o666))
	run := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		// The tools read /proc. It is mounted in namespaces that end with the tool.
		cmd := exec.Command("unshare", append(
			[]string{"--mount", "--pid", "--fork", "--kill-child", "--root=" + root, "--wd=/", "--mount-proc", "--", name},
			args...)...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		return string(out)
	}
	const uuid = "12345678-9abc-4def-8123-456789abcdef"
	for fs, steps := range map[string][][]string{
		"ext2": {{"mkfs.ext2", "-q", "DISK"}, {"e2fsck", "-f", "-p", "DISK"}, {"resize2fs", "DISK", "300M"},
			{"tune2fs", "-U", uuid, "DISK"}},
		"ext3": {{"mkfs.ext3", "-q", "DISK"}, {"e2fsck", "-f", "-p", "DISK"}, {"resize2fs", "DISK", "300M"},
			{"tune2fs", "-U", uuid, "DISK"}},
		"ext4": {{"mkfs.ext4", "-q", "DISK"}, {"e2fsck", "-f", "-p", "DISK"}, {"resize2fs", "DISK", "300M"},
			{"tune2fs", "-f", "-U", uuid, "DISK"}, {"dumpe2fs", "-h", "DISK"}},
		"xfs": {{"mkfs.xfs", "-q", "DISK"}, {"xfs_repair", "-n", "DISK"}, {"xfs_admin", "-U", uuid, "DISK"},
			{"xfs_db", "-r", "-c", "uuid", "DISK"}},
		"btrfs": {{"mkfs.btrfs", "-q", "DISK"}, {"btrfs", "check", "DISK"}, {"btrfstune", "-f", "-M", uuid, "DISK"}},
	} {
		t.Run(fs, func(t *testing.T) {
			disk := "/" + fs
			file, err := os.Create(root + disk)
			must(t, err)
			must(t, errors.Join(file.Truncate(400<<20), file.Close()))
			for _, step := range steps {
				step = slices.Clone(step)
				if i := slices.Index(step, "DISK"); i >= 0 {
					step[i] = disk
				}
				run(t, step[0], step[1:]...)
			}
			run(t, "fsck."+fs, "-a", disk)
			got := run(t, "blkid", "-p", "-o", "export", disk)
			if !strings.Contains(got, "UUID="+uuid) || !strings.Contains(got, "TYPE="+fs) {
				t.Errorf("blkid says\n%swant the type %s and the UUID %s", got, fs, uuid)
			}
		})
	}
	for name, args := range map[string][]string{
		"mount": {"--version"}, "umount": {"--version"}, "fsck": {"--version"}, "blockdev": {"--version"}, "xfs_growfs": {"-V"},
		"xfs_io": {"-V"}, "sh": {"-c", "echo"}, "unshare": {"--version"},
	} {
		t.Run(name, func(t *testing.T) { run(t, name, args...) })
	}
	if got := run(t, "/azuredisk"); !bytes.Contains([]byte(got), []byte("the program")) {
		t.Errorf("the driver's place: got %q, want the program", got)
	}
}

func TestTheDockerfileInstallsTheSamePackages(t *testing.T) {
	text, err := os.ReadFile("../Dockerfile")
	must(t, err)
	match := regexp.MustCompile(`--no-install-recommends ([a-z0-9. -]+) &&`).FindSubmatch(text)
	if match == nil {
		t.Fatal("the Dockerfile has no line that installs packages")
	}
	if got := strings.Fields(string(match[1])); !slices.Equal(got, image.Named) {
		t.Errorf("the Dockerfile installs %q, want %q", got, image.Named)
	}
}
