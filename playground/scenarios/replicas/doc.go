// Package replicas holds the scenarios in which nothing is broken: pods move between nodes,
// replicas make room for primaries, and the driver detaches the replicas of a volume that no pod
// uses.
package replicas
