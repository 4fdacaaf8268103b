package explain

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// The labels by which the chart marks its objects.
const (
	LabelPartOf    = "app.kubernetes.io/part-of"
	LabelComponent = "app.kubernetes.io/component"
)

// ControllerComponent is the component of the controller plug-in, by LabelComponent.
const ControllerComponent = "controller"

// DeploymentOf returns the Deployment of a component of the driver of the name, and not of another
// release of the chart; nil if there is none.
func DeploymentOf(deployments []*appsv1.Deployment, component, driverName string) *appsv1.Deployment {
	for _, d := range deployments {
		if d.Labels[LabelComponent] == component && IsDrivers(d.Spec.Template.Spec, driverName) {
			return d
		}
	}
	return nil
}

// IsDrivers reports whether a pod of the chart is of the driver of the name, and not of another
// release.
func IsDrivers(pod corev1.PodSpec, driverName string) bool {
	name, ok := Flag(pod, "driver-name")
	return !ok || name == driverName
}

// inController is the option of kubectl that names the controller's namespace, and the Deployment.
func (f Facts) inController() string {
	if c := f.Driver.Controller; c != nil {
		return "-n " + c.Namespace + " deploy/" + c.Name
	}
	return "-n " + f.DriverNamespace + " deploy/azuredisk-controller" // as the chart names it by default
}

// LeaseController is the lease of the leading controller of the driver.
const LeaseController = "azuredisk-controller"

// The sidecars whose leases matter.
const (
	sidecarProvisioner = "csi-provisioner"
	sidecarAttacher    = "csi-attacher"
	sidecarResizer     = "csi-resizer"
	sidecarSnapshotter = "csi-snapshotter"
)

// LeaseNames returns the names of the leases that tell whether the driver's parts run.
func LeaseNames(driverName string) []string {
	names := []string{LeaseController}
	for _, sidecar := range []string{sidecarProvisioner, sidecarAttacher, sidecarResizer, sidecarSnapshotter} {
		names = append(names, LeaseOf(sidecar, driverName))
	}
	return names
}

// LeaseOf is the name of the lease of a sidecar, which the sidecar makes from the driver's name; "" for
// another container.
func LeaseOf(sidecar, driverName string) string {
	driver := strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, driverName)
	switch sidecar {
	case sidecarProvisioner:
		return driver
	case sidecarAttacher:
		return "external-attacher-leader-" + driver
	case sidecarResizer:
		return "external-resizer-" + driver
	case sidecarSnapshotter:
		return "external-snapshotter-leader-" + driver
	}
	return ""
}

func (f Facts) isDriver(d storagev1.CSINodeDriver) bool { return d.Name == f.DriverName }

func (f Facts) attachRequired() bool {
	d := f.Driver.CSIDriver
	return d != nil && (d.Spec.AttachRequired == nil || *d.Spec.AttachRequired)
}

// leaseGrace is how long a lease may be expired before that counts: a standby is taking it over.
const leaseGrace = 30 * time.Second

func (f Facts) notInstalled() (Finding, bool) {
	if f.Driver.CSIDriver != nil || f.unread(CSIDrivers) {
		return Finding{}, false
	}
	return find(apiv1.ReasonCSIDriverMissing, "The cluster has no CSIDriver %s.", f.DriverName), true
}

// driver explains a part of the driver that does not run; ok is false if all run, or if that is not
// known. sidecar is "" if none matters.
func (f Facts) driver(sidecar string) (Finding, bool) {
	if finding, ok := f.notInstalled(); ok {
		return finding, true
	}
	if finding, ok := f.leader(); ok || sidecar == "" || f.unread(Leases) {
		return finding, ok
	}
	name := LeaseOf(sidecar, f.DriverName)
	if says, ok := LeaseExpired(f.Driver.Leases[name], f.Now); ok {
		return find(apiv1.ReasonSidecarNotLeading, "The sidecar %s does not lead: the lease %s %s.", sidecar, name, says).
			then("look at its log: kubectl logs %s -c %s", f.inController(), sidecar).
			seen(Evidence{Object: "Lease " + name, Says: says}), true
	}
	return Finding{}, false
}

// leader explains that no controller leads; ok is false if one does, or if that is not known.
func (f Facts) leader() (Finding, bool) {
	if f.unread(Leases) {
		return Finding{}, false
	}
	lease := f.Driver.Leases[LeaseController]
	if says, ok := LeaseExpired(lease, f.Now); ok {
		if set, known := f.Driver.setting("attach-required"); known && (set == "true") != f.attachRequired() {
			return find(apiv1.ReasonAttachRequiredDiffers, "The controller is set to attachRequired %s, and the CSIDriver says %t.", set,
				f.attachRequired()).seen(Evidence{Object: "Lease " + LeaseController, Says: says}), true
		}
		return find(apiv1.ReasonControllerNotLeading, "No controller of the driver leads: the lease %s %s.", LeaseController,
			says).
			then("run kubectl azuredisk doctor, which tries to write a lease; look at the pods of the controller: "+
				"kubectl get pods -n %s, and %s", f.DriverNamespace, f.logCommand()).
			seen(Evidence{Object: "Lease " + LeaseController, Says: says}), true
	}
	return Finding{}, false
}

// LeaseExpired reports whether no process holds a lease, and what it says. The lease is nil if there
// is none.
func LeaseExpired(l *coordinationv1.Lease, now time.Time) (says string, expired bool) {
	switch {
	case l == nil:
		return "does not exist", true
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "":
		return "has no holder", true
	case l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil:
		return "was never renewed", true
	}
	ends := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
	if now.After(ends.Add(leaseGrace)) {
		return "was renewed last at " + clockAt(now, l.Spec.RenewTime.Time), true
	}
	return "", false
}
