package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/config"
)

// newUninstallGuardCommand returns the command that the chart runs before it is
// uninstalled. It fails while there are objects whose finalizers only a running controller removes.
func newUninstallGuardCommand() *cobra.Command {
	settings := &config.Common{}
	cmd := &cobra.Command{
		Use:   "uninstall-guard",
		Short: "Fail while the driver has disks or attachments",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := prepare(cmd, settings, settings.Validate); err != nil {
				return err
			}
			cfg, err := restConfig(settings)
			if err != nil {
				return err
			}
			reader, err := client.New(cfg, client.Options{Scheme: newScheme()})
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			return refuseWithDisks(cmd.Context(), reader, settings.Namespace)
		},
	}
	settings.AddFlags(cmd.Flags())
	return cmd
}

func refuseWithDisks(ctx context.Context, reader client.Reader, namespace string) error {
	var held []string
	for _, kind := range []string{"AzVolume", "AzVolumeAttachment"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(apiv1.GroupVersion.WithKind(kind + "List"))
		err := reader.List(ctx, list, client.InNamespace(namespace))
		if meta.IsNoMatchError(err) {
			continue // there is not even a definition of the kind
		}
		if err != nil {
			return fmt.Errorf("list every %s: %w", kind, err)
		}
		for i := range list.Items {
			held = append(held, kind+" "+list.Items[i].Name)
		}
	}
	if len(held) == 0 {
		return nil
	}
	const shown = 20
	more := ""
	if len(held) > shown {
		held, more = held[:shown], fmt.Sprintf("\n  and %d more", len(held)-shown)
	}
	return fmt.Errorf("refusing to uninstall: namespace %s still has these objects, and without the driver their finalizers remain:\n  %s%s\n"+
		"delete the PersistentVolumeClaims and PersistentVolumes first; `helm uninstall --no-hooks` uninstalls nevertheless and keeps the objects and the disks",
		namespace, strings.Join(held, "\n  "), more)
}
