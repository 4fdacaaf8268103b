// Package index is the cache of the controller: what it holds, its indexes, lists of objects by
// those indexes, and predicates for watches.
//
// A controller watches the objects of its own kind with one handler and without a predicate that
// depends on whether an object is in the initial list. The handlers of a kind are registered one
// after the other, so that one object can be new to one handler and in the initial list of the next
// one: two handlers that complement each other by this would both leave it out.
package index
