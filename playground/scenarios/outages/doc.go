// Package outages holds the scenarios in which the control plane, the network of many nodes, or the
// driver's controller fails. They show what the driver must not do then, and that it continues
// afterwards.
package outages
