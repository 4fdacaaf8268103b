//go:build !race

package simulation_test

// enough histories for a change to be trusted.
const enough = 10000
