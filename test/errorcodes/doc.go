// Package errorcodes holds one table of every RPC that the driver serves with every code that it
// can end with, and makes each of them happen: the Controller server over a real API server and a
// platform in memory, the Node server over a kernel in memory. The same table is
// docs/reference/errors.md; the test fails when the page says something else.
//
//	go test ./test/errorcodes -update    # update the page
//
// A new row is one line in the list of its service.
package errorcodes
