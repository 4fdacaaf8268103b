// Package nodeplugin tests the program `azuredisk node` as a process: with a real kube-apiserver,
// real block devices and mounts, and the test in the parts of the kubelet, the controller and the
// instance metadata service. It is killed and started again. It needs root and loop devices.
package nodeplugin
