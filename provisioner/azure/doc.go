// Package azure is the cloud side of the Provisioner Library over Azure Compute, through Azure's
// own SDK. Programs make a Cloud with New, and otherwise use the interfaces of package provisioner.
// The packages below it say one thing each:
//
//   - credential signs in, and follows changes of the credential.
//   - pacing estimates quotas and decides when a request may be sent.
//   - operation polls long-running operations when they are likely to have ended, and resumes them.
//   - client sends requests over HTTP, and translates errors.
//   - batch joins the attaches and detaches of a VM in few calls.
//   - sku keeps what a region offers, and its quotas.
//
// # How it treats Azure
//
//   - Attach and detach are attachDetachDataDisks calls, for VMs and for instances of uniform scale
//     sets alike. One such call is in flight per VM; requests that arrive meanwhile are sent
//     together in the next one.
//   - An attach and a detach of one VM share a call, although a detach takes twice as long: one after
//     the other they would wait as long together, and use twice as much of a quota of 4 updates a
//     minute.
//   - Before each call the VM is read, and requests that arrive during that read are in the call.
//     The read shows which requests have nothing left to do and which do not fit, so that decisions
//     rest on Azure's answer and not on a cache.
//   - If Azure refuses a call because of one disk, only the request for that disk fails: each disk
//     is read, and where that does not show the reason, the call is made again in halves.
//   - A forced detach does not wait for other calls of its VM, and further forced detaches join it
//     while it is in flight, so that the disks of a lost node are detached in about the time of one
//     call. A forced detach that an earlier process began is resumed or watched, because another
//     one would take the whole time again.
//   - An operation has one poller, however many callers wait for it. A Retry-After is kept, and
//     meanwhile the VM is read: a read is another call, and may prove the end. A poll that fails
//     says nothing about the operation.
//   - Every request is paced by the documented quotas, the recorded ones of the disk provider, and
//     what the answers say is left.
//   - A token to resume an operation has the URL of its document alone: Azure's URLs have 4 KB each.
//   - That a VM does not exist, or does not have a disk, is a proof for the callers. It is accepted
//     only from an answer that is Azure's and complete.
//   - Errors are classified by HTTP status, error code, target and detail codes, and not by text.
//
// No state of this package is needed to be right: after a process was killed, another one asks
// again or resumes tokens.
package azure
