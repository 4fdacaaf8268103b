// Package nodefacts reads facts about nodes from the cache: which VM a node is, its free slots, and
// its health, for attachments and for the placement of replicas. It judges no node itself:
// nodehealth does.
package nodefacts
