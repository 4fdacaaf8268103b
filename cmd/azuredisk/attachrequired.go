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

// checkAttachRequired refuses a controller that was told otherwise than Kubernetes is: VolumeAttachments would then be made that nobody serves, or volumes
// be published by two who do not know of each other. Where there is no CSIDriver yet, it is being made by who started the controller. Its attachRequired
// is immutable, so that one look is enough.
func checkAttachRequired(ctx context.Context, kube client.Reader, settings *config.Controller) error {
	driver := &storagev1.CSIDriver{}
	err := kube.Get(ctx, client.ObjectKey{Name: settings.DriverName}, driver)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read CSIDriver %s: %w", settings.DriverName, err)
	}
	// The API server fills the field in; its default is true.
	if is := driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired; is != settings.AttachRequired {
		return fmt.Errorf("--attach-required is %t, and the CSIDriver %s says attachRequired: %t, which Kubernetes does not let anybody change; the two must be the same (docs/guides/without-volumeattachments.md)",
			settings.AttachRequired, settings.DriverName, is)
	}
	return nil
}
