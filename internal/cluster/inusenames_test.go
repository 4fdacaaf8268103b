package cluster_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/cluster"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
)

func TestADiskIsInUseUnderEachSpellingOfItsHandle(t *testing.T) {
	t.Parallel()
	const (
		ours = "kubernetes.io/csi/disk.csi.azure.com^"
		disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"
		caps = "/subscriptions/S/resourcegroups/G/providers/microsoft.compute/disks/D"
	)
	listed := []corev1.UniqueVolumeName{
		ours + disk, "kubernetes.io/csi/other.example.com^" + disk, ours + disk + "2", ours + caps, "kubernetes.io/nfs/x", ours,
	}
	want := []corev1.UniqueVolumeName{ours + disk, ours + caps}
	got := cluster.InUseNames(listed, "disk.csi.azure.com", volumehandle.Handle{
		SubscriptionID: "s",
		ResourceGroup:  "g",
		DiskName:       "d",
	})
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
