// Package volumeparams turns the parameters of a StorageClass, or the attributes
// of a PersistentVolume made by hand, into typed disk parameters. It is strict:
// an unknown parameter, a value that is not allowed, and parameters that
// contradict each other are errors that name the parameter, the value and what
// is allowed, all of them at once.
//
// Keys are compared without regard to case, and every parameter of the V1 driver is known, so
// that its StorageClasses go on working. Values of enumerations are exact, as they were there.
//
// It does no I/O. Its one caller is the CSI controller server.
package volumeparams
