package main

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

func TestAnotherAttachRequiredThanTheCSIDriversEndsTheStart(t *testing.T) {
	kube := apiserver.Client(t)
	settings := &config.Controller{}
	settings.DriverName = "attachrequired.example.com"
	for _, told := range []bool{true, false} {
		settings.AttachRequired = told
		if err := checkAttachRequired(t.Context(), kube, settings); err != nil {
			t.Errorf("attachRequired %t without a CSIDriver: got %v, want nil", told, err)
		}
	}
	for _, is := range []bool{true, false} {
		driver := &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: settings.DriverName},
			Spec:       storagev1.CSIDriverSpec{AttachRequired: &is},
		}
		if err := kube.Create(t.Context(), driver); err != nil {
			t.Fatal(err)
		}
		for _, told := range []bool{true, false} {
			settings.AttachRequired = told
			err := checkAttachRequired(t.Context(), kube, settings)
			if told == is && err != nil {
				t.Errorf("attachRequired %t, as in the CSIDriver: got %v, want nil", told, err)
			}
			if told != is && (err == nil ||
				!strings.Contains(err.Error(), "CSIDriver "+settings.DriverName+" has attachRequired")) {
				t.Errorf("attachRequired %t, and %t in the CSIDriver: got %v, want an error that names both", told, is, err)
			}
		}
		if err := kube.Delete(t.Context(), driver); err != nil {
			t.Fatal(err)
		}
	}
}
