// Command testvm writes what the virtual machine of `make vm-test` starts with: the kernel, and the
// root filesystem with programs.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/azuredisk-csi/azuredisk/image/debian"
	"github.com/azuredisk-csi/azuredisk/image/rootfs"
	"github.com/azuredisk-csi/azuredisk/image/testvm"
)

type options struct {
	cache, out string
	programs   map[string]string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var opts options
	cmd := &cobra.Command{
		Use:           "testvm",
		Short:         "Write OUT/kernel and OUT/root.cpio",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd, opts) },
	}
	cmd.Flags().StringVar(&opts.cache, "cache", "", "folder in which packages, and what is made of them, are kept")
	cmd.Flags().StringVar(&opts.out, "out", "", "folder to write to")
	cmd.Flags().StringToStringVar(&opts.programs, "program", nil, "programs to add, as PATH=FILE,…")
	_, _ = cmd.MarkFlagRequired("cache"), cmd.MarkFlagRequired("out")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(cmd *cobra.Command, opts options) error {
	kernel, root, err := base(cmd, opts.cache)
	if err != nil {
		return err
	}
	programs := rootfs.Tree{}
	for name, file := range opts.programs {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		programs.Put(name, 0o755, string(data))
	}
	added := bytes.NewBuffer(root)
	if err := testvm.WriteCPIO(added, programs); err != nil {
		return err
	}
	return write(opts.out, kernel, added.Bytes())
}

// base returns the kernel and the root filesystem without programs. They are made once: to unpack
// the kernel takes half a minute.
func base(cmd *cobra.Command, cache string) (kernel, root []byte, err error) {
	dir := filepath.Join(cache, fmt.Sprintf("testvm-%.6x", sha256.Sum256([]byte(testvm.Inputs()))))
	kernel, kernelErr := os.ReadFile(filepath.Join(dir, "kernel"))
	root, rootErr := os.ReadFile(filepath.Join(dir, "root.cpio"))
	if err := errors.Join(kernelErr, rootErr); !errors.Is(err, fs.ErrNotExist) {
		return kernel, root, err
	}
	lock, err := debian.ParseLock(testvm.LockText)
	if err != nil {
		return nil, nil, err
	}
	from := debian.NewFetcher(filepath.Join(cache, "debian"),
		func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) })
	vm, err := testvm.Fetch(cmd.Context(), from, lock)
	if err != nil {
		return nil, nil, err
	}
	var buffer bytes.Buffer
	if err := testvm.WriteCPIO(&buffer, vm.Tree); err != nil {
		return nil, nil, err
	}
	return vm.Kernel, buffer.Bytes(), write(dir, vm.Kernel, buffer.Bytes())
}

func write(dir string, kernel, root []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The kernel comes last: base reads nothing before both are complete.
	if err := os.WriteFile(filepath.Join(dir, "root.cpio"), root, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kernel"), kernel, 0o644)
}
