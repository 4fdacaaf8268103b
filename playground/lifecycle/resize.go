package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	growing   = "growing"
	modifying = "modifying"
)

var resizeTests = []Test{
	{Topic: growing, Name: "a volume grows while its pod uses it, and the filesystem with it", run: growsOnline},
	{Topic: modifying, Name: "a claim's new VolumeAttributesClass changes the disk", run: modifies},
	{Topic: modifying, Name: "a claim that names a VolumeAttributesClass begins with it", run: beginsModified},
}

// grow asks for a larger volume.
func (t *bench) grow(ctx context.Context, claim, size string) error {
	return t.patchClaim(ctx, claim, fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

func (t *bench) patchClaim(ctx context.Context, claim, patch string) error {
	_, err := t.kube.CoreV1().PersistentVolumeClaims(t.namespace).Patch(ctx, claim, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// awaitCapacity waits until the claim has that size, and no step is left to be done.
func (t *bench) awaitCapacity(ctx context.Context, name, size string) error {
	want := resource.MustParse(size)
	return await(ctx, "claim "+name+" has "+size, func(ctx context.Context) error {
		claim, err := t.getClaim(ctx, name)
		if err != nil {
			return err
		}
		have := claim.Status.Capacity[corev1.ResourceStorage]
		// Kubernetes says for how long a claim is not used by a condition, too: that is no step.
		steps := slices.DeleteFunc(claim.Status.Conditions,
			func(c corev1.PersistentVolumeClaimCondition) bool {
				return c.Type == corev1.PersistentVolumeClaimUnused
			})
		return errors.Join(
			check(have.Cmp(want) == 0, "it has %s", have.String()),
			check(len(steps) == 0, "its conditions are %v", steps),
		)
	})
}

// awaitSize waits until the pod sees at least that many GiB; nine tenths of them, if a filesystem
// takes its part.
func (t *bench) awaitSize(ctx context.Context, pod, path string, gib int64, filesystem bool) error {
	least := gib << 30
	if filesystem {
		least = least * 9 / 10
	}
	return await(ctx, fmt.Sprintf("%s has %d GiB in %s", path, gib, pod), func(ctx context.Context) error {
		text, err := t.probe(ctx, pod, "size", path)
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(text, 10, 64)
		return errors.Join(err, check(size >= least && size <= gib<<30, "it has %d bytes", size))
	})
}

func (t *bench) checkDiskSize(ctx context.Context, pv *corev1.PersistentVolume, gib int64) error {
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return err
	}
	return check(disk.Properties.SizeGB == gib, "the disk has %d GiB", disk.Properties.SizeGB)
}

// growsOnline takes XFS: for ext4 the kernel wants CAP_SYS_RESOURCE, which not every machine on
// which a playground runs leaves to its containers.
func growsOnline(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi", parameters("fsType", "xfs"))
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "from before"); err != nil {
		return err
	}
	if err := t.grow(ctx, "data", "7Gi"); err != nil {
		return err
	}
	if err := t.awaitCapacity(ctx, "data", "7Gi"); err != nil {
		return err
	}
	return errors.Join(
		t.awaitSize(ctx, pod.Name, dataDir+"/data", 7, true),
		t.checkDiskSize(ctx, pv, 7),
		t.expect(ctx, "from before", pod.Name, "cat", filePath("data", "file")),
	)
}

// attributes makes a VolumeAttributesClass of the driver.
func (t *bench) attributes(ctx context.Context, name string, parameters map[string]string) (string, error) {
	class := &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-" + name, Labels: labels()},
		DriverName: driverName,
		Parameters: parameters,
	}
	if _, err := t.kube.StorageV1().VolumeAttributesClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("make VolumeAttributesClass: %w", err)
	}
	t.later("delete the VolumeAttributesClass", func(ctx context.Context) error {
		return t.kube.StorageV1().VolumeAttributesClasses().Delete(ctx, class.Name, metav1.DeleteOptions{})
	})
	return class.Name, nil
}

// v2Size is large enough for a choice: the smallest disks have the least performance and no other.
const v2Size = "16Gi"

// v2 is a class of disks whose performance can be chosen.
func v2(c *storagev1.StorageClass) {
	c.Parameters["skuName"], c.Parameters["cachingMode"] = "PremiumV2_LRS", "None"
}

// awaitPerformance waits until the claim has the attributes class, and the disk its performance.
func (t *bench) awaitPerformance(ctx context.Context, name, class string, iops, mbps int64) error {
	return await(ctx, "the disk is as "+class+" says", func(ctx context.Context) error {
		claim, pv, err := t.awaitBound(ctx, name)
		if err != nil {
			return err
		}
		disk, err := t.disk(ctx, pv)
		if err != nil {
			return err
		}
		current := claim.Status.CurrentVolumeAttributesClassName
		return errors.Join(
			check(current != nil && *current == class, "the claim has another class"),
			check(disk.Properties.IOPS == iops && disk.Properties.MBps == mbps, "the disk has %d IOPS, %d MB/s",
				disk.Properties.IOPS, disk.Properties.MBps),
		)
	})
}

func modifies(ctx context.Context, t *bench) error {
	gold, err := t.attributes(ctx, "gold", map[string]string{"DiskIOPSReadWrite": "5000", "DiskMBpsReadWrite": "200"})
	if err != nil {
		return err
	}
	pod, _, err := t.volume(ctx, v2Size, v2)
	if err != nil {
		return err
	}
	if err := t.patchClaim(ctx, "data", fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, gold)); err != nil {
		return err
	}
	if err := t.awaitPerformance(ctx, "data", gold, 5000, 200); err != nil {
		return err
	}
	// The pod has not noticed.
	_, err = t.probe(ctx, pod.Name, "put", filePath("data", "file"), "still writing")
	return err
}

func beginsModified(ctx context.Context, t *bench) error {
	silver, err := t.attributes(ctx, "silver", map[string]string{"DiskIOPSReadWrite": "4000", "DiskMBpsReadWrite": "150"})
	if err != nil {
		return err
	}
	class, err := t.class(ctx, "v2", immediate, v2)
	if err != nil {
		return err
	}
	err = t.claim(ctx, "data", class, v2Size,
		func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &silver })
	if err != nil {
		return err
	}
	return t.awaitPerformance(ctx, "data", silver, 4000, 150)
}
