package nodereport

import apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"

// SetMaintenance sets what Azure has announced for the VM; nil if that is not known. It is written
// at once if there is an event, or was one. Otherwise it can wait for the next write, because a
// further write for each node delays the first start in a large cluster. Until the first call the
// reports keep what an earlier process has written.
func (r *Reporter) SetMaintenance(announced *apiv1.NodeMaintenance) {
	r.mu.Lock()
	// The former announcements may be in a write that has not returned yet.
	urgent := hasEvents(announced) || hasEvents(r.maintenance) || r.known != nil && hasEvents(r.known.Status.Maintenance)
	r.maintenance, r.maintenanceSet = announced, true
	r.mu.Unlock()
	if urgent {
		r.wakeUp()
	}
}

func hasEvents(m *apiv1.NodeMaintenance) bool { return m != nil && len(m.Events) > 0 }

// reportMaintenance sets the announcements in a report.
func (r *Reporter) reportMaintenance(status *apiv1.AzDriverNodeStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maintenanceSet {
		status.Maintenance = r.maintenance.DeepCopy()
	}
}
