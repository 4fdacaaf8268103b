package main

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/config"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers,verbs=get

// checkAttachRequired refuses a setting that differs from the CSIDriver's: either no component
// would serve the VolumeAttachments, or Kubernetes and the controller would publish volumes
// independently. If there is no CSIDriver yet, the installation that started the controller is
// creating it. Its attachRequired is immutable, so one check is sufficient.
func checkAttachRequired(ctx context.Context, kube client.Reader, settings *config.Controller) error {
	driver := &storagev1.CSIDriver{}
	err := kube.Get(ctx, client.ObjectKey{Name: settings.DriverName}, driver)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read CSIDriver %s: %w", settings.DriverName, err)
	}
	// The API server sets the field; its default is true.
	if is := driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired; is != settings.AttachRequired {
		return fmt.Errorf("--attach-required is %t, and the CSIDriver %s has attachRequired: %t, which is immutable; the two must be the same (docs/guides/without-volumeattachments.md)",
			settings.AttachRequired, settings.DriverName, is)
	}
	return nil
}
