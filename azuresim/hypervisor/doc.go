// Package hypervisor makes the simulator's disks real: backing files, and block devices over them that can be cut off.
package hypervisor
