// Package observer shows a cluster as watches see it: View answers questions about it and waits for
// conditions, and Observer turns each change of the scenario's pods, volumes and nodes into an
// event of the timeline, and the steps of a failover into milestones.
package observer
