package simulation

import (
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/plan/ownership"
)

// Scenes are situations that rarely happen by chance, because each needs several faults that meet one volume in a certain order. A share of the histories
// plays them between the phases of settle, in a world that has settled, and the world has to settle again after each.

// playUsed plays the scenes of volumes that are in use.
func (w *world) playUsed(cluster *cluster) {
	if !w.scenes {
		return
	}
	for _, v := range w.volumes {
		if v.want != "" && w.kubelets && w.machine(v.want).well() {
			w.cutOffAndBack(v, w.machine(v.want))
			w.until("every volume is where it is wanted again", patience, cluster.place)
		}
	}
	w.until("replicas and Azure are as they should be again", patience, cluster.notSettled)
	w.adopt()
}

// playUnused plays the scenes of volumes that nothing uses.
func (w *world) playUnused(cluster *cluster) {
	if !w.scenes || !w.kubelets {
		return
	}
	for _, v := range w.volumes {
		if m := pick(w.random, w.hosts()); !v.several && m.well() && w.takesPods(m) {
			w.giveUpPod(v, m)
			w.until("every volume is released again", patience, cluster.place)
		}
	}
}

// cutOffAndBack cuts a machine off for long enough to be fenced, and reconnects it without a reboot, with the next pod of the volume.
func (w *world) cutOffAndBack(v *volumeModel, m *machine) {
	m.setCutOff(true)
	for end := w.now().Add(time.Duration(15+w.random.IntN(15)) * time.Second); w.violation == "" && w.now().Before(end); {
		w.step()
	}
	m.setCutOff(false)
	w.nextPodOn(v, m)
}

// giveUpPod makes a pod start while many requests to the API server and to Azure fail, and deletes it as soon as its volume is mounted and a call has failed.
func (w *world) giveUpPod(v *volumeModel, m *machine) {
	w.note("trouble while a pod of %s starts on %s", v.name, m.name)
	w.addPod(v, m)
	l := m.kubelet.volume(v)
	for end := w.now().Add(time.Minute); w.violation == "" && w.now().Before(end) && (l.busy || l.failures == 0 || !m.mounted(v.name)); w.step() {
		// Until it is mounted no request fails.
		if w.trouble = 0; m.mounted(v.name) {
			w.trouble = 60
		}
	}
	w.trouble = 0
	for _, p := range w.podsOf(v) {
		if !p.deleting {
			w.endPodModel(p)
		}
	}
}

// lateCall sends a node plug-in a call to stage a volume of several nodes after the proof that it is unused there, once for each volume and node.
func (c *cluster) lateCall(v *volumeModel, m *machine) {
	key := v.name + " late on " + m.name
	a := c.w.attachment(v.name, m.name)
	if !c.w.scenes || !m.on || a == nil || !ownership.HasProof(a) || c.calls[key] != nil {
		return
	}
	c.do(key, func() *call { return c.w.stage(m, v, callTimeout/3) })
}

// adopt makes all staged volumes look as if the V1 driver had staged them, so that the driver adopts them. The mount namespace of a container that is older than that
// often keeps a volume mounted until the container ends.
func (w *world) adopt() {
	for _, m := range w.machines {
		for _, v := range w.volumes {
			staged, found := m.mounts[m.staging(v.name)]
			if !found || !m.forgetRecord(v) || w.random.IntN(4) == 0 {
				continue
			}
			ends := w.now().Add(time.Duration(1+w.random.IntN(60)) * time.Second)
			w.note("a mount namespace on %s keeps %s mounted until %s", m.name, v.name, ends.Sub(w.began))
			m.leaks = append(m.leaks, leak{staged.Source, v.name, ends})
		}
	}
}
