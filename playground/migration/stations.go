package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/poll"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// diskFacts are what no move between drivers may change of a disk.
type diskFacts struct {
	Unique string
	SizeGB int64
	SKU    string
	Zones  []string
	Tags   map[string]string
	// AttachedTo are the VMs that have the disk, with the one of managedBy first. It is not compared.
	AttachedTo []string
}

// same reports whether it is the same disk, unchanged.
func (d diskFacts) same(other diskFacts) bool {
	return d.Unique == other.Unique && d.SizeGB == other.SizeGB && d.SKU == other.SKU && slices.Equal(d.Zones, other.Zones) &&
		maps.Equal(d.Tags, other.Tags)
}

func (j *journey) disk(ctx context.Context, v volume) (diskFacts, error) {
	var answer struct {
		Tags  map[string]string `json:"tags"`
		Zones []string          `json:"zones"`
		SKU   struct {
			Name string `json:"name"`
		} `json:"sku"`
		ManagedBy  string   `json:"managedBy"`
		Extended   []string `json:"managedByExtended"`
		Properties struct {
			Unique string `json:"uniqueId"`
			SizeGB int64  `json:"diskSizeGB"`
		} `json:"properties"`
	}
	err := j.arm.Get(ctx, v.id(), diskVersion, &answer)
	attachedTo := answer.Extended
	if answer.ManagedBy != "" && !slices.Contains(attachedTo, answer.ManagedBy) {
		attachedTo = slices.Insert(attachedTo, 0, answer.ManagedBy)
	}
	return diskFacts{
		Unique:     answer.Properties.Unique,
		SizeGB:     answer.Properties.SizeGB,
		SKU:        answer.SKU.Name,
		Zones:      answer.Zones,
		Tags:       answer.Tags,
		AttachedTo: attachedTo,
	}, err
}

// detachLeft deletes the VolumeAttachment that V1 left, as Kubernetes does when no pod wants the
// volume any more.
func (j *journey) detachLeft(ctx context.Context) error {
	v := volumes[len(volumes)-1]
	if disk, err := j.disk(ctx, v); err != nil || len(disk.AttachedTo) == 0 {
		return errors.Join(err, errors.New("the disk is attached to no VM before"))
	}
	if _, err := j.kubectl(ctx, "delete", "volumeattachment", leftAttachment, "--timeout=2m"); err != nil {
		return err
	}
	disk, err := j.disk(ctx, v)
	if err == nil && len(disk.AttachedTo) > 0 {
		err = fmt.Errorf("the VolumeAttachment has gone, and the disk is attached to %q", disk.AttachedTo)
	}
	return err
}

const podManifest = `apiVersion: v1
kind: Pod
metadata: {name: {{.Name}}, namespace: migration}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: {{.Node}}}
  containers:
    - name: probe
      image: {{.Image}}
      imagePullPolicy: Never
      args: [hold]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, {{.Source}}}]
`

// startPod starts a pod with the volume, and of its name.
func (j *journey) startPod(ctx context.Context, v volume, node topology.Node) error {
	err := j.applyTemplate(ctx, podManifest, map[string]string{
		"Name":   v.name,
		"Source": v.podSource(),
		"Node":   node.Name,
		"Image":  j.Image.Ref,
	})
	if err != nil {
		return err
	}
	if _, err := j.kubectl(ctx, "wait", "--namespace", namespace, "pod/"+v.name, "--for=condition=Ready",
		"--timeout=3m"); err != nil {
		events, _ := j.kubectl(ctx, "get", "events", "--namespace", namespace, "--field-selector", "involvedObject.name="+v.name)
		return fmt.Errorf("%w\n%s", err, events)
	}
	return nil
}

// startAll starts a pod with each volume on the node.
func (j *journey) startAll(ctx context.Context, node topology.Node) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, v := range volumes {
		group.Go(func() error { return j.startPod(ctx, v, node) })
	}
	return group.Wait()
}

// startPods starts a pod with each volume, reads what V1's pods have written, and writes something
// new beside it.
func (j *journey) startPods(ctx context.Context) error {
	first, _ := j.where()
	if err := j.startAll(ctx, first); err != nil {
		return err
	}
	for _, v := range volumes {
		if _, err := j.probe(ctx, v.name, "put", "/data/new", "written after the switch"); err != nil {
			return err
		}
		uid, err := j.kubectl(ctx, "get", "--namespace", namespace, "pod", v.name, "--output", "jsonpath={.metadata.uid}")
		if err != nil {
			return err
		}
		j.pods[v.name] = uid
	}
	return errors.Join(j.checkPods(ctx), j.checkReservations(ctx, true))
}

// checkPods checks that the pods are those that they were, have not restarted, and read and write.
func (j *journey) checkPods(ctx context.Context) error {
	for _, v := range volumes {
		state, err := j.kubectl(ctx, "get", "--namespace", namespace, "pod", v.name,
			"--output", "jsonpath={.metadata.uid} {.status.phase} {.status.containerStatuses[0].restartCount}")
		if err != nil {
			return err
		}
		if want := j.pods[v.name] + " Running 0"; state != want {
			return fmt.Errorf("pod %s is %q, and was %q", v.name, state, want)
		}
		if err := j.checkData(ctx, v); err != nil {
			return err
		}
		if _, err := j.probe(ctx, v.name, "put", "/data/again", "still writing"); err != nil {
			return err
		}
	}
	return nil
}

func (j *journey) checkData(ctx context.Context, v volume) error {
	for file, want := range map[string]string{"file": v.content(), "new": "written after the switch"} {
		got, err := j.probe(ctx, v.name, "cat", "/data/"+file)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the volume %s has %q in %s, and not %q", v.name, got, file, want)
		}
	}
	disk, err := j.disk(ctx, v)
	if err == nil && !disk.same(j.before[v.name]) {
		err = fmt.Errorf("the disk of %s is %+v and was %+v", v.name, disk, j.before[v.name])
	}
	return err
}

const newClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: new, namespace: migration}
spec:
  storageClassName: managed-v1
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 4Gi}}
`

// provision makes a volume by V1's StorageClass and gives it back.
func (j *journey) provision(ctx context.Context) error {
	if err := j.apply(ctx, newClaim); err != nil {
		return err
	}
	_, second := j.where()
	if err := j.startPod(ctx, volume{name: "new"}, second); err != nil {
		return err
	}
	if _, err := j.probe(ctx, "new", "put", "/data/file", "new"); err != nil {
		return err
	}
	pv, err := j.kubectl(ctx, "get", "--namespace", namespace, "persistentvolumeclaim", "new", "--output",
		"jsonpath={.spec.volumeName}")
	if err != nil {
		return err
	}
	if _, err := j.kubectl(ctx, "delete", "--namespace", namespace, "pod/new", "persistentvolumeclaim/new"); err != nil {
		return err
	}
	_, err = j.kubectl(ctx, "wait", "persistentvolume", pv, "--for=delete", "--timeout=2m")
	return err
}

// finalizers are those that Kubernetes and the sidecars set, whichever driver there is.
var finalizers = []string{
	"kubernetes.io/pv-protection", "kubernetes.io/pvc-protection", "external-attacher/disk-csi-azure-com",
	"external-provisioner.volume.kubernetes.io/finalizer",
}

// checkBack checks that V1 would find everything as it left it.
func (j *journey) checkBack(ctx context.Context) error {
	if err := errors.Join(j.checkPods(ctx), j.checkReservations(ctx, false)); err != nil {
		return err
	}
	left, err := j.kubectl(ctx, "get", "customresourcedefinitions,clusterroles,clusterrolebindings,storageclasses,csidrivers,validatingadmissionpolicies,priorityclasses",
		"--selector", "app.kubernetes.io/part-of=azuredisk", "--output", "name")
	if err != nil || left != "" {
		return errors.Join(err, fmt.Errorf("left of this driver: %q", left))
	}
	set, err := j.kubectl(ctx, "get", "persistentvolumes,persistentvolumeclaims,volumeattachments", "--all-namespaces",
		"--output", "jsonpath={.items[*].metadata.finalizers[*]}")
	if err != nil {
		return err
	}
	for _, finalizer := range strings.Fields(set) {
		if !slices.Contains(finalizers, finalizer) {
			return fmt.Errorf("an object has the finalizer %s", finalizer)
		}
	}
	driver, err := j.kubectl(ctx, "get", "csidriver", "disk.csi.azure.com", "--output",
		"jsonpath={.metadata.annotations.csiDriver} {.spec.podInfoOnMount}")
	if err != nil || driver != "v1 true" {
		return errors.Join(err, fmt.Errorf("the CSIDriver object is not V1's: %q", driver))
	}
	first, _ := j.where()
	for _, v := range volumes {
		disk, err := j.disk(ctx, v)
		if err != nil || len(disk.AttachedTo) != 1 || !strings.EqualFold(disk.AttachedTo[0], first.ResourceID()) {
			return errors.Join(err, fmt.Errorf("the disk of %s is attached to %q", v.name, disk.AttachedTo))
		}
	}
	return nil
}

// movePods starts the pods on another node: their volumes were attached and mounted before this
// driver was there.
func (j *journey) movePods(ctx context.Context) error {
	_, second := j.where()
	if _, err := j.kubectl(ctx, "delete", "--namespace", namespace, "pods", "--all"); err != nil {
		return err
	}
	if err := j.startAll(ctx, second); err != nil {
		return err
	}
	for _, v := range volumes {
		if err := j.checkData(ctx, v); err != nil {
			return err
		}
		disk, err := j.disk(ctx, v)
		here := slices.ContainsFunc(disk.AttachedTo, func(vm string) bool { return strings.EqualFold(vm, second.ResourceID()) })
		// A shared disk may stay attached to the first node, as a replica.
		if err != nil || !here || v.shares < 2 && len(disk.AttachedTo) > 1 {
			return errors.Join(err, fmt.Errorf("the disk of %s is attached to %q", v.name, disk.AttachedTo))
		}
	}
	return j.checkReservations(ctx, true)
}

// checkReservations checks that the shared disks have a persistent reservation while this driver's
// pods use them, and that no disk has one afterwards: another user of the disk could not write.
func (j *journey) checkReservations(ctx context.Context, used bool) error {
	admin, err := j.Cluster.AzureAdmin(ctx)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		found, err := admin.Reservation(ctx, v.id())
		if want := used && v.shares > 1; err != nil || found.None() == want {
			return errors.Join(err, fmt.Errorf("the disk of %s has the reservation %+v, want one: %t", v.name, found, want))
		}
	}
	return nil
}

// deleteClaims deletes everything that uses the volumes. One was to be deleted with its claim.
func (j *journey) deleteClaims(ctx context.Context) error {
	if _, err := j.kubectl(ctx, "delete", "--namespace", namespace, "pods,persistentvolumeclaims", "--all"); err != nil {
		return err
	}
	for _, v := range volumes {
		if v.policy == "Retain" {
			if _, err := j.disk(ctx, v); err != nil {
				return fmt.Errorf("the disk of %s was to be kept: %w", v.name, err)
			}
			continue
		}
		err := poll.Until(ctx, 2*time.Minute, 200*time.Millisecond, "the disk of "+v.name+" is deleted",
			func(ctx context.Context) error {
				switch _, err := j.disk(ctx, v); {
				case err == nil:
					return errors.New("it is there")
				case strings.HasPrefix(err.Error(), "404"):
					return nil
				default:
					return err
				}
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// cleanUp deletes what is kept on purpose: PersistentVolumes, with which their records go, the
// record of the disk without one, and the disks, which no Kubernetes object refers to then.
func (j *journey) cleanUp(ctx context.Context) error {
	for _, args := range [][]string{
		{"delete", "namespace", namespace},
		{"delete", "persistentvolumes", "--ignore-not-found", volumes[1].disk, volumes[2].disk, volumes[4].disk},
		{"delete", "--namespace", "azure-disk-csi", "azvolumes", "--field-selector", "spec.disk.name=" + volumes[3].disk,
			"--wait=false"},
		{"wait", "--namespace", "azure-disk-csi", "azvolumes", "--all", "--for=delete", "--timeout=2m"},
		{"delete", "storageclass", "managed-v1"},
	} {
		if _, err := j.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	if err := j.checkReservations(ctx, false); err != nil {
		return err
	}
	for _, v := range volumes {
		if v.policy != "Retain" {
			continue
		}
		if _, err := j.disk(ctx, v); err != nil {
			return fmt.Errorf("the disk of %s was to outlive its PersistentVolume: %w", v.name, err)
		}
		if err := j.arm.Delete(ctx, v.id(), diskVersion); err != nil {
			return fmt.Errorf("delete the disk of %s: %w", v.name, err)
		}
	}
	return nil
}
