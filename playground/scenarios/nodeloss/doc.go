// Package nodeloss holds the scenarios in which the node of a pod that writes is lost, and its
// failover is judged. Most of them begin with beginLoss and end with endLoss.
package nodeloss
