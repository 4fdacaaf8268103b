//go:build !race

package simulation_test

// enough histories for every run of the tests; `make simulation` plays more.
const enough = 3000
