// Package stack runs the whole driver for tests, as real processes on this
// machine: etcd and kube-apiserver, azuresim with its hypervisor and real block
// devices, the controller plug-in, one node plug-in for each simulated VM and
// the scheduler extender. The test plays Kubernetes and calls the CSI sockets.
//
// Every process can be killed with SIGKILL and started again. When the test ends, everything is
// stopped and the machine is searched for what was left behind.
package stack
