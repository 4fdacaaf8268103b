package simulation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The objects that Kubernetes has of volumes: PersistentVolumes and their claims, a pod for each
// volume that a kubelet stages, and the volumes in use of each Node, which the failover has to
// remove from a lost node before Kubernetes unpublishes them.

const podNamespace = "default"

func inUseName(v *volumeModel) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^" + diskOf(v.name))
}

// addPersistentVolume creates the PersistentVolume and the PersistentVolumeClaim of a volume, bound
// to each other.
func (w *world) addPersistentVolume(v *volumeModel) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: diskOf(v.name)}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: podNamespace, Name: v.name}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if v.several {
		block := corev1.PersistentVolumeBlock
		pv.Spec.AccessModes, pv.Spec.VolumeMode = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, &block
	}
	if v.retained {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	w.must(w.store.Create(pv))
	pv.Status.Phase = corev1.VolumeBound
	w.must(w.store.Update(pv, true))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: v.name}}
	claim.Spec.VolumeName = v.name
	w.must(w.store.Create(claim))
}

// releasePersistentVolume is what follows from the deletion of the claim.
func (w *world) releasePersistentVolume(v *volumeModel) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.name}}
	w.must(w.store.Get(clientKey(pv), pv))
	pv.Status.Phase = corev1.VolumeReleased
	w.must(w.store.Update(pv, true))
}

func podOf(v *volumeModel, m *machine) *corev1.Pod {
	key := podKey(v, m)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

func podKey(v *volumeModel, m *machine) client.ObjectKey {
	return client.ObjectKey{Namespace: podNamespace, Name: v.name + "-on-" + m.name}
}

// usePod puts a pod on a node, and the volume into what the Node uses, before the volume is staged.
func (w *world) usePod(m *machine, v *volumeModel) {
	if w.apiDown || m.cutOff {
		return
	}
	if w.podThere(m, v) && (w.byPods || w.inUse(m, v)) {
		return // as nearly always, and a look is cheaper than a write that changes nothing
	}
	yes, p := true, podOf(v, m)
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1",
		Kind:       "StatefulSet",
		Name:       v.name,
		UID:        types.UID(v.name),
		Controller: &yes,
	}}
	p.Spec.NodeName = m.name
	p.Spec.Volumes = []corev1.Volume{{
		Name:         "data",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.name}},
	}}
	_ = w.store.Create(p)
	if w.byPods {
		return // the kubelet tells only of volumes that are attached for it
	}
	w.changeNode(m, func(n *corev1.Node) {
		if !slices.Contains(n.Status.VolumesInUse, inUseName(v)) {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, inUseName(v))
		}
	})
}

// endPod takes both away, after the volume was unstaged.
func (w *world) endPod(m *machine, v *volumeModel) {
	if w.apiDown || (m.cutOff || !m.on) && !w.personDoes(forcePods, v, m) {
		return
	}
	if w.podThere(m, v) {
		_ = w.store.Delete(podOf(v, m), client.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
	if !w.inUse(m, v) {
		return
	}
	w.changeNode(m, func(n *corev1.Node) {
		n.Status.VolumesInUse = slices.DeleteFunc(n.Status.VolumesInUse,
			func(name corev1.UniqueVolumeName) bool { return name == inUseName(v) })
	})
}

// podThere reports whether the pod that uses a volume on a node is there.
func (w *world) podThere(m *machine, v *volumeModel) bool {
	return w.store.Look((*corev1.Pod)(nil), podKey(v, m)) != nil
}

func (w *world) changeNode(m *machine, change func(*corev1.Node)) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	w.must(w.store.Get(clientKey(n), n))
	change(n)
	w.must(w.store.Update(n, true))
}

// inUse reports whether Kubernetes holds the volume to be in use on a node, and so does not
// unpublish it.
func (w *world) inUse(m *machine, v *volumeModel) bool {
	return slices.Contains(m.volumesInUse(), inUseName(v))
}

func (m *machine) volumesInUse() []corev1.UniqueVolumeName {
	if n := m.w.node(m); n != nil {
		return n.Status.VolumesInUse
	}
	return nil
}

// node returns the Node of a machine, which must not be changed, or nil.
func (w *world) node(m *machine) *corev1.Node {
	n, _ := w.store.Look((*corev1.Node)(nil), client.ObjectKey{Name: m.name}).(*corev1.Node)
	return n
}
