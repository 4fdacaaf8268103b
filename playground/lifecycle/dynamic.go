package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	provisioning = "dynamic provisioning"
	reclaiming   = "reclaiming"
)

var dynamicTests = []Test{
	{Topic: provisioning, Name: "the disk at Azure is what class and claim say", run: makesTheDisk},
	{Topic: provisioning, Name: "a raw block claim becomes a device in the pod", run: makesADevice},
	{Topic: provisioning, Name: "a claim that cannot be had says why", run: saysWhy},
	{Topic: reclaiming, Name: "Delete deletes the disk and then the volume", run: deletes},
	{
		Topic: reclaiming,
		Name:  "a retained disk outlives its volume without a reservation, and is bound again with its data",
		run:   outlives,
	},
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
		check(disk.Properties.SizeGB == 5 && size.String() == "5Gi", "the disk has %d GiB, the volume %s", disk.Properties.SizeGB,
			size.String()),
		check(disk.SKU.Name == "StandardSSD_LRS", "its SKU is %s", disk.SKU.Name),
		check(disk.Properties.State == "Unattached", "it is %s", disk.Properties.State),
		check(disk.Tags["team"] == "storage", "its tags are %v", disk.Tags),
		check(disk.Tags["kubernetes.io-created-for-pvc-name"] == "data" &&
			disk.Tags["kubernetes.io-created-for-pvc-namespace"] == t.namespace &&
			disk.Tags["kubernetes.io-created-for-pv-name"] == pv.Name, "its tags are %v", disk.Tags),
	)
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
	return check(strings.Contains(message, "Premium_XYZ") && strings.Contains(strings.ToLower(message), "skuname"),
		"the event says %q", message)
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
	pod, old, err := t.volume(ctx, "4Gi", retain,
		parameters("maxShares", "2", "maxMountReplicaCount", "1", "cachingMode", "None"))
	if err != nil {
		return err
	}
	if err := t.checkReservation(ctx, old, true); err != nil {
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
	if err := t.checkReservation(ctx, old, false); err != nil {
		return err
	}
	again := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-again", Labels: labels()},
		Spec:       *old.Spec.DeepCopy(),
	}
	again.Spec.ClaimRef, again.Spec.PersistentVolumeReclaimPolicy = nil, corev1.PersistentVolumeReclaimDelete
	if _, err := t.kube.CoreV1().PersistentVolumes().Create(ctx, again, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make PersistentVolume %s: %w", again.Name, err)
	}
	t.later("delete the PersistentVolume", func(ctx context.Context) error {
		return t.kube.CoreV1().PersistentVolumes().Delete(ctx, again.Name, metav1.DeleteOptions{})
	})
	byName := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = again.Name }
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

// checkReservation checks whether the disk of a volume has a persistent reservation, as it must
// have while a pod uses it and its disk is shared. One that the driver has given up would keep
// others from writing.
func (t *bench) checkReservation(ctx context.Context, pv *corev1.PersistentVolume, want bool) error {
	admin, err := t.AzureAdmin(ctx)
	if err != nil {
		return err
	}
	found, err := admin.Reservation(ctx, pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return err
	}
	return check(found.None() != want, "the disk has the reservation %+v, want one: %t", found, want)
}
