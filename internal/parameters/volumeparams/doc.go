// Package volumeparams parses the parameters of a StorageClass, and the attributes of a
// PersistentVolume that a user created manually, into typed disk parameters. It is strict: an
// unknown parameter, a value that is not allowed, and parameters that contradict each other are
// errors that name the parameter, the value and what is allowed. One error lists all faults.
//
// Keys are compared without regard to case, and every parameter of the V1 driver is known, so that
// its StorageClasses continue to work. Values of enumerations are compared exactly, as in the V1
// driver.
//
// It does no I/O. The CSI controller server and the CSI node server call it.
package volumeparams
