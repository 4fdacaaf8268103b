// Package handover holds no code. Its tests run the whole controller plug-in over a real API server and a platform
// in memory, and check the hand-over protocol and the laws from the outside.
package handover
