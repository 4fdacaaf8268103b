package simulation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

// diskThere reports whether Azure has the disk of a volume.
func (w *world) diskThere(v *volumeModel) bool {
	for _, d := range w.azure.state().Disks {
		if strings.EqualFold(d.ID, diskOf(v.name)) {
			return true
		}
	}
	return false
}

// kept holds that no disk is deleted unless CSI was asked to delete its volume.
func (w *world) kept() {
	if len(w.azure.state().Disks) == len(w.volumes) {
		return // as nearly always
	}
	for _, v := range w.volumes {
		if v.made && !v.mayGo && !w.diskThere(v) {
			w.broken("the disk of %s was deleted without a request", v.name)
		}
	}
}

// ghosts asserts that no VM has a disk that does not exist. Azure lets a disk be deleted while it
// is being attached.
func (w *world) ghosts(state fake.State) {
	if len(state.Disks) == len(w.volumes) {
		return // as nearly always
	}
	exists := map[string]bool{}
	for _, d := range state.Disks {
		exists[strings.ToLower(d.ID)] = true
	}
	for _, vm := range state.Instances {
		for _, d := range vm.DataDisks {
			if !exists[strings.ToLower(d.DiskID)] {
				w.broken("VM %s has disk %s, which was deleted during its attach", lastOf(vm.ID), lastOf(d.DiskID))
			}
		}
	}
}

// giveUp makes people delete the objects of released volumes: the PersistentVolumes of disks that
// are to be kept, and AzVolumes, in any order, while controllers are replaced.
func (w *world) giveUp() {
	for _, v := range w.volumes {
		record := w.random.IntN(3) // 0: before the PersistentVolume; 1: after it; 2: it stays
		if record == 0 {
			w.deleteRecord(v)
		}
		if v.retained {
			// If it is deleted before the driver has recorded it, the driver cannot know that it
			// existed: a person has to delete the AzVolume.
			object := w.volume(v.name)
			v.forgettable = object != nil && object.Status.PersistentVolume != ""
			w.note("a person deletes the PersistentVolume of %s", v.name)
			w.must(w.store.Delete(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.name}}, client.DeleteOptions{}))
		}
		if w.random.IntN(2) == 0 {
			w.replaceLeader()
		}
		if record == 1 {
			w.deleteRecord(v)
		}
	}
}

func (w *world) deleteRecord(v *volumeModel) {
	w.note("a person deletes the AzVolume %s", v.name)
	w.must(client.IgnoreNotFound(w.store.Delete(&apiv1.AzVolume{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace,
		Name:      v.name,
	}}, client.DeleteOptions{})))
	for range w.random.IntN(10) {
		w.step()
	}
}

// replaceLeader kills the leader after some steps.
func (w *world) replaceLeader() {
	for range w.random.IntN(20) {
		w.step()
	}
	w.changeLeader()
}

// unforgotten names the volumes that Kubernetes does not use any more and the driver still has.
func (w *world) unforgotten() string {
	var left []string
	for _, v := range w.volumes {
		if v.forgettable && w.volume(v.name) != nil {
			left = append(left, v.name)
		}
	}
	return strings.Join(left, ", ")
}
