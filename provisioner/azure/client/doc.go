// Package client sends requests to Azure Resource Manager through Azure's SDK. It holds back requests that would exceed a quota, retries what failed in
// transit, translates refusals into the error kinds of package provisioner, and follows long-running operations.
package client
