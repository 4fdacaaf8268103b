package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/azuredisk-csi/azuredisk/internal/cli/collect"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/version"
)

const (
	// bundleTimeout bounds the collection.
	bundleTimeout = 10 * time.Minute
	// logLines and logBytes bound the log of one container.
	logLines = 5000
	logBytes = 4 << 20
)

func newBundleCommand(s *settings) *cobra.Command {
	file, subscriptions := "", false
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what the driver's support needs in one archive",
		Long: `Collect in one archive what the driver's support needs:

  objects/      the driver's objects, and the StorageClasses, PersistentVolumes, claims, VolumeAttachments, Nodes,
                CSINodes, events, workloads and leases that belong to it
  logs/         the ends of the logs of the driver's pods, of at most 50 pods
  why.txt       what is wrong with each volume, claim and node that is not as it should be
  contents.txt  what could not be read

Credentials, tokens, signatures of URLs and private keys are removed, and Secrets are not read. The IDs of subscriptions
and tenants are replaced, unless you keep them with --subscriptions, as Microsoft's support needs them. The names of your
objects, nodes and disks stay. Look through the archive before you publish it.

It reads with your own rights.` + explain.ExitHelp(func(c explain.ExitCode) string { return c.Others }),
		Example: `  kubectl azuredisk bundle
  kubectl azuredisk bundle --file - | tar tz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), bundleTimeout)
			defer cancel()
			files, at, err := s.collectBundle(ctx, subscriptions)
			if err != nil {
				return err
			}
			if file == "-" {
				return writeArchive(cmd.OutOrStdout(), files, at)
			}
			if file == "" {
				file = "azuredisk-" + at.UTC().Format("20060102-150405") + ".tar.gz"
			}
			if err := writeFile(file, files, at); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d files are in %s. Look through them before you publish it.\n", len(files), file)
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "",
		"archive to write; - for the standard output, and by default azuredisk-TIME.tar.gz")
	cmd.Flags().BoolVar(&subscriptions, "subscriptions", false, "keep the IDs of subscriptions and tenants")
	return cmd
}

// collectBundle returns the files of a bundle, and the API server's time.
func (s *settings) collectBundle(ctx context.Context, subscriptions bool) ([]collect.File, time.Time, error) {
	reader, now, err := s.reader()
	if err != nil {
		return nil, time.Time{}, err
	}
	config, err := s.config()
	if err != nil {
		return nil, time.Time{}, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, time.Time{}, err
	}
	files, err := collect.Bundle(ctx, reader, collect.BundleOptions{
		DriverName:      s.driverName,
		DriverNamespace: s.driverNamespace,
		Now:             now.Now,
		Subscriptions:   subscriptions,
		Log: func(ctx context.Context, pod *corev1.Pod, container string, previous bool) ([]byte, error) {
			lines, bytes := int64(logLines), int64(logBytes)
			return kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
				Container: container, Previous: previous, Timestamps: true, TailLines: &lines, LimitBytes: &bytes,
			}).DoRaw(ctx)
		},
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	text := "kubectl-azuredisk " + version.Version + "\n"
	if server, err := kube.Discovery().ServerVersion(); err == nil {
		text += "Kubernetes " + server.GitVersion + "\n"
	}
	return append(files, collect.File{Name: "versions.txt", Content: []byte(text)}), now.Now(), nil
}

// writeFile writes the archive into a new file, which only the user may read.
func writeFile(name string, files []collect.File, at time.Time) error {
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := writeArchive(out, files, at); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// writeArchive writes the files as a compressed archive.
func writeArchive(w io.Writer, files []collect.File, at time.Time) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{
			Name: "azuredisk/" + f.Name, Mode: 0o600, Size: int64(len(f.Content)), ModTime: at,
		}); err != nil {
			return err
		}
		if _, err := archive.Write(f.Content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zip.Close()
}
