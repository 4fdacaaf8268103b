// Package maintenance holds the scenarios in which Azure services nodes: a pause is not a death.
package maintenance
