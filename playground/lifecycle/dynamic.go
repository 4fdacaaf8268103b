package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	provisioning = "dynamic provisioning"
	reclaiming   = "reclaiming"
)

var dynamicTests = []Test{
	{Topic: provisioning, Name: "the claim is marked for the provisioner, and the volume with it", run: marksForTheProvisioner},
	{Topic: provisioning, Name: "the disk at Azure is what class and claim say", run: makesTheDisk},
	{Topic: provisioning, Name: "a claim that names its volume is not provisioned", run: leavesAlone(func(t *bench, c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = t.namespace + "-missing"
	}, nil)},
	{Topic: provisioning, Name: "a claim of another provisioner is left alone", run: leavesAlone(nil, func(c *storagev1.StorageClass) {
		c.Provisioner = "other.example.com"
	})},
	{Topic: provisioning, Name: "a raw block claim becomes a device in the pod", run: makesADevice},
	{Topic: provisioning, Name: "a claim that cannot be had says why", run: saysWhy},
	{Topic: reclaiming, Name: "Delete deletes the disk and then the volume", run: deletes},
	{Topic: reclaiming, Name: "a retained disk outlives its volume, and is bound again with its data", run: outlives},
	{Topic: reclaiming, Name: "a claim that a pod uses is deleted when the pod has gone", run: protects},
}

func marksForTheProvisioner(ctx context.Context, t *bench) error {
	if err := t.data(ctx, "4Gi", immediate); err != nil {
		return err
	}
	claim, pv, err := t.awaitBound(ctx, "data")
	if err != nil {
		return err
	}
	errs := []error{
		check(pv.Annotations["pv.kubernetes.io/provisioned-by"] == driverName, "the volume's annotations are %v", pv.Annotations),
		check(pv.Name == "pvc-"+string(claim.UID), "the volume is called %s", pv.Name),
		check(pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID, "the volume's claimRef is %+v", pv.Spec.ClaimRef),
		check(pv.Spec.StorageClassName == t.namespace+"-data", "the volume's class is %s", pv.Spec.StorageClassName),
		check(pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete, "the volume's reclaim policy is %s", pv.Spec.PersistentVolumeReclaimPolicy),
		check(pv.Status.Phase == corev1.VolumeBound, "the volume is %s", pv.Status.Phase),
		check(claim.Annotations[bindCompleted] == "yes", "the claim's annotations are %v", claim.Annotations),
	}
	for _, prefix := range []string{"volume", "volume.beta"} {
		key := prefix + ".kubernetes.io/storage-provisioner"
		errs = append(errs, check(claim.Annotations[key] == driverName, "the claim's annotation %s is %q", key, claim.Annotations[key]))
	}
	return errors.Join(errs...)
}

func makesTheDisk(ctx context.Context, t *bench) error {
	pv, err := t.bound(ctx, "5Gi", parameters("skuName", "StandardSSD_LRS", "tags", "team=storage"))
	if err != nil {
		return err
	}
	disk, err := t.disk(ctx, pv)
	if err != nil {
		return err
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return errors.Join(
		check(disk.Properties.SizeGB == 5 && size.String() == "5Gi", "the disk has %d GiB, the volume %s", disk.Properties.SizeGB, size.String()),
		check(disk.SKU.Name == "StandardSSD_LRS", "its SKU is %s", disk.SKU.Name),
		check(disk.Properties.State == "Unattached", "it is %s", disk.Properties.State),
		check(disk.Tags["team"] == "storage", "its tags are %v", disk.Tags),
		check(disk.Tags["kubernetes.io-created-for-pvc-name"] == "data" && disk.Tags["kubernetes.io-created-for-pvc-namespace"] == t.namespace &&
			disk.Tags["kubernetes.io-created-for-pv-name"] == pv.Name, "its tags are %v", disk.Tags),
	)
}

// leavesAlone tests that nothing is made for a claim with these changes: when a claim that
// was made after it is bound, it is still pending, and there is no disk for it.
func leavesAlone(change func(*bench, *corev1.PersistentVolumeClaim), class func(*storagev1.StorageClass)) func(context.Context, *bench) error {
	return func(ctx context.Context, t *bench) error {
		changes := []func(*storagev1.StorageClass){immediate}
		if class != nil {
			changes = append(changes, class)
		}
		odd, err := t.class(ctx, "odd", changes...)
		if err != nil {
			return err
		}
		err = t.claim(ctx, "odd", odd, "4Gi", func(c *corev1.PersistentVolumeClaim) {
			if change != nil {
				change(t, c)
			}
		})
		if err != nil {
			return err
		}
		usual, err := t.class(ctx, "usual", immediate)
		if err != nil {
			return err
		}
		if err := t.claim(ctx, "usual", usual, "4Gi"); err != nil {
			return err
		}
		if _, _, err := t.awaitBound(ctx, "usual"); err != nil {
			return err
		}
		claim, err := t.getClaim(ctx, "odd")
		if err != nil {
			return err
		}
		disks, err := t.atAzure(ctx, "disks")
		if err != nil {
			return err
		}
		for _, name := range disks {
			if strings.Contains(name, string(claim.UID)) {
				return fmt.Errorf("there is the disk %s", name)
			}
		}
		return check(claim.Status.Phase == corev1.ClaimPending, "the claim is %s", claim.Status.Phase)
	}
}

func makesADevice(ctx context.Context, t *bench) error {
	class, err := t.class(ctx, "raw")
	if err != nil {
		return err
	}
	if err := t.claim(ctx, "raw", class, "4Gi", block); err != nil {
		return err
	}
	if _, err := t.run(ctx, "user", []string{"raw"}); err != nil {
		return err
	}
	_, pv, err := t.awaitBound(ctx, "raw")
	if err != nil {
		return err
	}
	if mode := pv.Spec.VolumeMode; mode == nil || *mode != corev1.PersistentVolumeBlock {
		return errors.New("the volume is not a block volume")
	}
	const text = "straight to the device"
	if _, err := t.probe(ctx, "user", "write", devicePath("raw"), text); err != nil {
		return err
	}
	return errors.Join(
		t.expect(ctx, text, "user", "read", devicePath("raw"), fmt.Sprint(len(text))),
		t.expect(ctx, fmt.Sprint(4<<30), "user", "size", devicePath("raw")),
	)
}

func saysWhy(ctx context.Context, t *bench) error {
	if err := t.data(ctx, "4Gi", immediate, parameters("skuName", "Premium_XYZ")); err != nil {
		return err
	}
	message, err := t.awaitEvent(ctx, "data", "ProvisioningFailed")
	if err != nil {
		return err
	}
	return check(strings.Contains(message, "Premium_XYZ") && strings.Contains(strings.ToLower(message), "skuname"), "the event says %q", message)
}

func deletes(ctx context.Context, t *bench) error {
	pv, err := t.bound(ctx, "4Gi")
	if err != nil {
		return err
	}
	if err := t.deleteClaim(ctx, "data"); err != nil {
		return err
	}
	err = await(ctx, "the volume is gone", func(ctx context.Context) error {
		_, err := t.kube.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
		return gone(err)
	})
	if err != nil {
		return err
	}
	// The disk is deleted first: without the volume nothing refers to the disk any more.
	if _, err := t.disk(ctx, pv); err == nil || !strings.HasPrefix(err.Error(), "404") {
		return fmt.Errorf("the volume has gone, and the disk has not: %w", err)
	}
	return nil
}

func outlives(ctx context.Context, t *bench) error {
	pod, old, err := t.volume(ctx, "4Gi", retain)
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "retained"); err != nil {
		return err
	}
	if err := errors.Join(t.deletePod(ctx, pod.Name), t.deleteClaim(ctx, "data")); err != nil {
		return err
	}
	if err := t.awaitPhase(ctx, old.Name, corev1.VolumeReleased); err != nil {
		return err
	}
	if err := t.kube.CoreV1().PersistentVolumes().Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = await(ctx, "the driver has forgotten the volume", func(ctx context.Context) error {
		if volume, err := t.azVolumeOf(ctx, old); err != nil || volume != "" {
			return errors.Join(err, check(volume == "", "AzVolume %s is still there", volume))
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch disk, err := t.disk(ctx, old); {
	case err != nil:
		return fmt.Errorf("look for the disk: %w", err)
	case disk.ManagedBy != "" || len(disk.ManagedByExtended) > 0:
		return fmt.Errorf("the disk is still attached to %s %s", disk.ManagedBy, disk.ManagedByExtended)
	}
	again := func(pv *corev1.PersistentVolume) {
		pv.Spec = *old.Spec.DeepCopy()
		pv.Spec.ClaimRef, pv.Spec.PersistentVolumeReclaimPolicy = nil, corev1.PersistentVolumeReclaimDelete
	}
	if err := t.static(ctx, "again", "4Gi", again); err != nil {
		return err
	}
	byName := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = t.namespace + "-again" }
	if err := t.claim(ctx, "again", old.Spec.StorageClassName, "4Gi", byName); err != nil {
		return err
	}
	reader, err := t.run(ctx, "reader", []string{"again"})
	if err != nil {
		return err
	}
	if err := t.expect(ctx, "retained", reader.Name, "cat", filePath("again", "file")); err != nil {
		return err
	}
	if err := errors.Join(t.deletePod(ctx, reader.Name), t.deleteClaim(ctx, "again")); err != nil {
		return err
	}
	return t.awaitDiskGone(ctx, old)
}

func protects(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	if err := t.deleteClaim(ctx, "data"); err != nil {
		return err
	}
	if claim, err := t.getClaim(ctx, "data"); err != nil || claim.DeletionTimestamp == nil {
		return errors.Join(err, errors.New("the claim does not wait for its pod"))
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "still here"); err != nil {
		return err
	}
	if err := t.deletePod(ctx, pod.Name); err != nil {
		return err
	}
	return t.awaitDiskGone(ctx, pv)
}
