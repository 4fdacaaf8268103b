// Package lifecycle tests, on a playground that is up, what Kubernetes promises about
// volumes and needs a CSI driver for: from the claim to the mount and back. What Kubernetes
// does alone, as the choice of a PersistentVolume for a claim, is not tested here. Each test
// has a sentence for its name and checks it with real pods, kubelets and disks.
// `playground lifecycle` runs them.
//
// A test has a namespace of its own and waits for conditions, never for time to pass. Tests
// run side by side, on all nodes but the last one. That one is for the tests that
// disturb a node (Test.Disturbs); they run one after the other, beside the rest.
// Objects without a namespace begin with the namespace's name, so no test sees another's. At
// the end it is checked that no object of the driver and no disk at Azure is left over.
package lifecycle
