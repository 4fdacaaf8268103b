// Package contract checks requests to Azure Compute, and answers, against Azure's own description of
// them. The description is read from the source of armcompute, the Go SDK, which Microsoft generates
// from the REST specification: the models, which of their members are required or read-only, and
// which call takes and returns which model.
package contract
