// Package crashpoint kills a process at a named instruction, to test that nothing is lost wherever
// it dies (law 5). The controller's code names such points with At, one line each, before and after
// the writes from which a restart must continue.
//
// Only a build with the tag crashpoints can do this: without the tag At does nothing and is
// compiled away, and Handlers returns nil. A process of such a build serves /crash together with
// its metrics:
//
//	POST   /crash?point=NAME  arms a point: the process dies when it reaches it
//	DELETE /crash             disarms all points
//	GET    /crash             says which points are armed, and which were passed how often
//
// An armed point ends with the process, so a point fires once. Scenarios of the playground call it.
package crashpoint
