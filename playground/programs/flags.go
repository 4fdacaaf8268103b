package programs

// GoFlags are Go's flags for everything that is compiled in this project, so that one cache serves
// all of it. The Makefile and hack/stages.sh have the same.
const GoFlags = "-buildvcs=false -trimpath -gcflags=all=-dwarf=false"
