package collect

// Mapper knows the resources that are read.
var Mapper = mapper
