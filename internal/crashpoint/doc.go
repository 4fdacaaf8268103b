// Package crashpoint lets a process be killed at a named instruction, so that it can be shown that nothing is lost
// wherever it dies (law 5). The controller's code names such points with At, one line each, before and after the
// writes that a restart has to find its way back from.
//
// Only a build with the tag crashpoints has any of this: without it At does nothing and is compiled
// away, and Handlers returns nil. A tagged process serves /crash beside its metrics:
//
//	POST   /crash?point=NAME  arms a point: the process dies when it comes there next
//	DELETE /crash             disarms all points
//	GET    /crash             says which points are armed, and which were passed how often
//
// What is armed dies with the process, so a point fires once. Scenarios of the playground call it.
package crashpoint
