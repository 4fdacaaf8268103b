// Package index is the cache of the controller: what it holds, its indexes, lists of objects by those indexes, and
// predicates for watches; and how the queues are filled at the start.
package index
