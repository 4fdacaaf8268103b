// Package view is what the reconcilers see of the cluster: the cache and what is kept
// in it, its indexes, and the health of nodes.
package view
