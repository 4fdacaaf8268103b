//go:build race

package simulation_test

// enough histories for the race detector, which makes each of them ten times slower.
const enough = 200
