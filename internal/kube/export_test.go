package kube

// ListKeys are the lists that a FieldPatch takes for lists with keys.
var ListKeys = listKeys
