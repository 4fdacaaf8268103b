// Package index is the cache of the controller: what it holds, its indexes, lists of objects by those indexes, and
// predicates for watches.
package index
