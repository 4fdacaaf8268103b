// Package cluster is what the driver knows of the cluster, for the reconcilers, the CSI servers and
// the scheduler extender: what is cached and trimmed, the indexes, the look-ups, the facts of a
// node, and waiting for a change.
//
// What is read from the cache may be old. It decides what is looked at, and is enough for advice.
// A call or a reconciler that writes reads the objects from which it decides from the API server,
// and writes with optimistic locking: Client and Reader are two names wherever both are passed.
//
// Objects that are read with client.UnsafeDisableDeepCopy, as by FindBy and by all look-ups here,
// share memory with the cache. They are only read: a change begins with DeepCopy.
package cluster
