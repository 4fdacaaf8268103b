// Package azure is the cloud side of the Provisioner Library over Azure Compute, through
// Azure's own SDK. Programs make a Cloud with New; everything else uses the interfaces of
// package provisioner.
//
// # How it treats Azure
//
//   - Attach and detach are attachDetachDataDisks calls, for VMs and for instances of uniform
//     scale sets alike. One such call is in flight per VM; who comes meanwhile travels in the
//     next one. See dispatcher.
//   - Before each call the VM is read, and whoever asks during that read still gets on. The
//     reading tells which requests have nothing left to do and which don't fit, so that
//     decisions rest on the platform's word and never on a cache.
//   - A call that Azure refuses because of one disk fails that disk only: the truth about each disk is
//     read, and where it does not tell, the call is made again in halves.
//   - A forced detach departs beside all others of its VM, and whoever comes while it is in flight boards it, so that the disks of a
//     lost node are cut off in about the time of one call. One that an earlier process began is gone on with or watched, since
//     another would begin its time anew.
//   - Operations are polled when they are likely to have ended, by one poller however many wait.
//     A Retry-After is kept to; Azure Compute sends none with the operations of VMs. What fails to be heard says nothing
//     about an operation. They can be resumed from a token by another process.
//   - Every request is paced by the documented quotas and by what the answers say is left.
//   - That a VM is gone or has no such disk is believed only of an answer that is Azure's and complete: others take it for a proof.
//   - Errors are told apart by HTTP status, error code, target and detail codes, never by text.
//
// No state of this package is needed to be right: a process that was killed is followed by one
// that asks again or resumes tokens.
package azure
