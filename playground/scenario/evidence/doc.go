// Package evidence reads what the parts of the system have recorded themselves: the CSI calls in
// the driver's logs, and the calls that azuresim has answered. It also passes azuresim the faults
// that a scenario orders.
package evidence
