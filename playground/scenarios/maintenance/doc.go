// Package maintenance holds the scenarios in which Azure services nodes: a pause is not a death,
// and an upgrade of all nodes, one after the other, moves each pod onto a replica.
package maintenance
