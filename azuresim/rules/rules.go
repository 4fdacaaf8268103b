// Package rules names every rule of Azure that azuresim follows, with the source that says so and the functions that apply it. A test holds the list to the
// code and to the table in README.md; `azuresim verify` plays the rules against a subscription.
package rules

// Rule is something that azuresim does because Azure does it.
type Rule struct {
	ID string
	// Says is the rule, in one sentence.
	Says string
	// Source is the address of a page, or "recorded: " and the call whose answer shows the rule. It is empty for an assumption.
	Source string
	// Code names the functions that apply the rule: package.Function or package.Type.Function.
	Code []string
}

const (
	docs   = "https://learn.microsoft.com/azure/"
	github = "https://github.com/"
	spec   = github + "Azure/azure-rest-api-specs/tree/main/specification/compute/resource-manager/Microsoft.Compute"
	// diskRecording has recorded answers of the disk provider, api-version 2025-01-02.
	diskRecording = github + "kubernetes-sigs/cloud-provider-azure/blob/master/pkg/azclient/diskclient/testdata/AZURECLOUD.yaml"
	shared        = docs + "virtual-machines/disks-shared"
	enableShared  = docs + "virtual-machines/disks-shared-enable"
	async         = docs + "azure-resource-manager/management/async-operations"
	managerLimits = docs + "azure-resource-manager/management/request-limits-and-throttling"
	computeLimits = docs + "virtual-machines/compute-throttling-limits"
)

func code(names ...string) []string { return names }

// All lists the rules: requests, disks, attachments, VMs, copies.
var All = []Rule{
	{"token", "A call without a token, with one of another issuer, or with one that has expired is 401.", "", code("auth.Authority.Check")},
	{"token-audience", "A token for another audience than Resource Manager is 401 InvalidAuthenticationTokenAudience.", github + "Azure-Samples/active-directory-dotnetcore-daemon-v2/issues/145", code("arm.Server.authenticate")},
	{"token-grant", "The token endpoint answers client-credentials grants.", docs + "active-directory/develop/v2-oauth2-client-creds-grant-flow", code("arm.Server.token")},
	{"role", "A call that no role of the caller grants is 403 AuthorizationFailed.", docs + "azure-resource-manager/troubleshooting/common-deployment-errors", code("arm.Server.authorize")},
	{"role-linked", "A reference to what the caller may not use is 403 LinkedAuthorizationFailed.", github + "kubernetes-sigs/azuredisk-csi-driver/issues/2609", code("arm.Server.authorizeLinked")},
	{"api-version-missing", "A call without an api-version is 400 MissingApiVersionParameter.", "", code("arm.checkVersion")},
	{"api-version", "An api-version that the kind of resource never had is 400 NoRegisteredProviderFound.", github + "claranet/terraform-azurerm-windows-vm/issues/7", code("arm.checkVersion")},
	{"api-version-groups", "For subscriptions and groups such an api-version is 400 InvalidApiVersionParameter.", github + "microsoft/AzureStorageExplorer/issues/4292", code("arm.checkVersion")},
	{"subscription-malformed", "A subscription that is no UUID is 400 InvalidSubscriptionId.", github + "hashicorp/terraform-provider-azurerm/issues/25954", code("compute.Cloud.CheckSubscription")},
	{"subscription-unknown", "An unknown subscription is 404 SubscriptionNotFound.", docs + "azure-resource-manager/troubleshooting/common-deployment-errors", code("compute.Cloud.CheckSubscription")},
	{"group-unknown", "A call in a resource group that does not exist is 404 ResourceGroupNotFound.", docs + "azure-resource-manager/troubleshooting/common-deployment-errors", code("arm.Server.checkPlace", "compute.mustGroup")},
	{"group-location", "A resource group keeps its location.", "", code("compute.Cloud.PutGroup")},
	{"resource-unknown", "A resource that does not exist is 404 ResourceNotFound.", diskRecording, code("compute.resourceNotFound")},
	{"type-unknown", "A path or action that does not exist is 404.", docs + "azure-resource-manager/troubleshooting/common-deployment-errors", code("arm.Server.answer")},
	{"body", "A body that cannot be read is 400 InvalidRequestContent.", docs + "azure-resource-manager/troubleshooting/common-deployment-errors", code("arm.invalidContent", "arm.Server.admit")},
	{"member-unknown", "An unknown member is 400 InvalidRequestContent, one of properties 400 BadRequest.", github + "kubernetes-sigs/cloud-provider-azure/issues/8919", code("arm.route.checkMembers")},
	{"parameter-missing", "A missing required parameter is 400 InvalidParameter.", spec, code("compute.missing", "compute.Cloud.createDisk", "compute.Cloud.createVM", "arm.Server.deleteInstances")},
	{"parameter-range", "A number out of its range is 400 InvalidParameter.", spec, code("compute.outOfRange")},
	{"tags", "A resource has up to 50 tags. A name has 1 to 512 characters other than <>%&\\?/, a value up to 256.", docs + "azure-resource-manager/management/tag-resources", code("arm.checkTags")},
	{"tags-case", "Names of tags that differ in case only are one tag.", github + "MicrosoftDocs/azure-docs/issues/57888", code("arm.tags.UnmarshalJSON")},
	{"location-missing", "A new resource without a location is 400 LocationRequired.", docs + "azure-resource-manager/troubleshooting/common-deployment-errors", code("arm.Server.putGroup", "arm.Server.putLinked", "compute.Cloud.createDisk", "compute.Cloud.createSnapshot", "compute.Cloud.createVM", "compute.Cloud.newScaleSet")},
	{"location-unknown", "An unknown location is 400 LocationNotAvailableForResourceType.", "", code("compute.locationUnknown")},
	{"id-malformed", "A reference that is no resource ID is 400 InvalidParameter.", spec, code("compute.ParseID")},
	{"filter", "Lists of SKUs filter by location, lists of VMs by scale set.", "https://learn.microsoft.com/rest/api/compute/resource-skus/list", code("arm.Server.listSKUs", "arm.Server.listMembers")},
	{"pages", "Lists come in pages with a nextLink: Azure's have 50 to 200 VMs.", github + "Azure/azure-sdk-for-java/issues/31382", code("arm.listReply")},
	{"skip-token", "A skip token that was not given out is 400 InvalidParameter.", github + "Azure/azure-sdk-for-java/issues/27991", code("arm.call.after")},
	{"list-vms", "A list of the VMs of a resource group or subscription has their disks and not their power state.", github + "Azure/azure-sdk-for-java/issues/31382", code("arm.Server.listVMs")},
	{"list-expand", "A list of VMs takes $expand=instanceView only with a filter.", github + "Azure/azure-rest-api-specs/issues/42411", code("arm.Server.listVMs")},
	{"list-instances", "A list of the instances of a uniform scale set has their disks, and with $expand=instanceView their power state.", spec, code("arm.Server.listInstances")},
	{"list-status", "A list of the VMs of a subscription with statusOnly has their power state, and neither tags nor profiles.", github + "Azure/azure-sdk-for-go/issues/18565", code("arm.renderStatus")},
	{"list-status-members", "The same list takes the filter by flexible scale set.", github + "Azure/azure-sdk-for-go/issues/19707", code("arm.Server.renderListed")},
	{"operation", "A write is answered 200, 201 or 202 with Azure-AsyncOperation, and an operation can be asked for a day.", async, code("arm.Server.asyncHeaders", "arm.Server.getOperation")},
	{"operation-output", "The answer about a finished operation of the disk provider has the resource in properties.output.", diskRecording, code("arm.Server.diskResult")},
	{"retry-after-create", "The creation of a disk is answered with Retry-After: 2.", "recorded: PUT of a disk with api-version 2020-12-01 on 2021-11-01", code("arm.Server.retryAfter", "latency.Realistic")},
	{"quota-manager", "Resource Manager gives a principal 250 reads (25/s), 200 writes and 200 deletes (10/s each) in a subscription, and all principals 15 times that.", managerLimits, code("throttle.Request.limits", "throttle.limit.refusal")},
	{"quota-compute", "Azure Compute gives each VM and each subscription token buckets by policy.", computeLimits, code("throttle.Request.limits", "throttle.limit.refusal")},
	{"quota-foreign", "Answers to writes to scale sets and their instances also name quotas that the request does not use, one with nothing left.", github + "Azure/azure-sdk-for-go/blob/sdk/resourcemanager/compute/armcompute/v3.0.1/sdk/resourcemanager/compute/armcompute/testdata/recordings", code("throttle.Limiter.headers", "latency.Realistic")},

	{"disk-name", "A disk's name has 1 to 80 letters, digits, underlines, full stops and hyphens, begins with a letter or digit, and does not end with a full stop or hyphen.", docs + "azure-resource-manager/management/resource-name-rules", code("compute.CheckName")},
	{"disk-sku", "A disk has one of the SKUs of the specification.", spec, code("compute.checkDisk")},
	{"disk-zones", "An LRS disk is in at most one zone, a ZRS disk in none; Ultra and Premium v2 disks need a zone where there are zones.", docs + "virtual-machines/disks-types", code("compute.checkDiskZones")},
	{"disk-zone-fixed", "Another zone for an existing disk is 400 BadRequest.", github + "hashicorp/terraform-provider-azurerm/issues/16059", code("compute.Cloud.updateDisk")},
	{"disk-location-fixed", "Another location for an existing disk is 409 InvalidResourceLocation.", "", code("compute.Cloud.updateDisk")},
	{"disk-source-fixed", "A disk keeps its createOption.", github + "jrudlin/Azure/issues/5", code("compute.Cloud.PutDisk")},
	{"disk-shares", "SKU and size limit maxShares.", shared, code("compute.checkShares")},
	{"disk-shares-change", "maxShares changes only while the disk is attached nowhere.", shared, code("compute.diskStep.checkShares")},
	{"disk-tier", "A premium SSD can have a higher tier than that of its size; other disks have none to choose.", docs + "virtual-machines/disks-change-performance", code("compute.checkTier", "compute.diskStep.checkTier")},
	{"disk-tier-shown", "Only premium SSDs show a tier.", github + "MicrosoftDocs/azure-docs/issues/106167", code("compute.Cloud.diskView")},
	{"disk-performance-shown", "Every disk shows the IOPS and MBps that it has, and dataAccessAuthMode only if it was set.", diskRecording, code("compute.Cloud.diskView", "arm.renderDisk")},
	{"disk-performance", "IOPS and MBps can be chosen for Ultra and Premium v2 disks, within limits by size.", docs + "virtual-machines/disks-types", code("compute.checkPerformance")},
	{"disk-bursting", "On-demand bursting is for premium SSDs above 512 GiB that are not shared, and stays on for 12 hours.", docs + "virtual-machines/disks-enable-bursting", code("compute.checkBursting", "compute.diskStep.checkBursting")},
	{"disk-shrink", "A smaller size is refused: the disk \"cannot be resized down\".", github + "MicrosoftDocs/azure-docs/pull/57951", code("compute.diskStep.checkSize")},
	{"disk-grow-attached", "A shared disk, and one that crosses 4 TiB, does not grow while it is attached to a running VM.", docs + "virtual-machines/linux/expand-disks", code("compute.diskStep.checkSize")},
	{"disk-sku-change", "Which SKUs can become which, and when.", docs + "virtual-machines/disks-convert-types", code("compute.diskStep.checkSKU", "compute.diskStep.checkLiveConversion")},
	{"disk-network", "AllowPrivate needs a disk access, and no other policy takes one.", docs + "virtual-machines/disks-enable-private-links-for-import-export-portal", code("compute.checkNetworkAccess")},
	{"disk-encryption-set", "A disk encryption set that does not exist is 400 BadRequest.", github + "Azure/azure-cli/issues/18355", code("compute.checkLinks")},
	{"disk-access", "A disk access that does not exist is 400 BadRequest.", "", code("compute.checkLinks")},
	{"linked-used", "A disk encryption set or disk access that a disk refers to cannot be deleted.", "", code("compute.Cloud.DeleteLinked")},
	{"disk-quota", "A subscription has limits of disks and GiB by SKU and location.", docs + "azure-resource-manager/management/azure-subscription-service-limits", code("compute.checkQuota")},
	{"disk-delete-attached", "A disk that is attached cannot be deleted.", github + "kubernetes/kubernetes/issues/77121", code("compute.Cloud.DeleteDisk")},
	{"disk-delete-attaching", "A disk that is being attached can be deleted; the VM keeps a disk that does not exist.", github + "kubernetes/kubernetes/issues/82714", code("compute.Cloud.DeleteDisk", "compute.Cloud.forgetDisk")},
	{"disk-attaching-state", "A disk is Unattached until its attach has ended.", github + "kubernetes/kubernetes/issues/82714", code("compute.Cloud.diskView")},
	{"disk-busy", "A write to a disk that is being changed is 409 Conflict.", "", code("compute.Cloud.laneFree", "compute.checkDiskChange")},

	{"attach-missing-disk", "An attach of a disk that does not exist is 404 NotFound, also in a whole list that names it.", github + "kubernetes/kubernetes/pull/88444", code("compute.Cloud.attachOne", "compute.checkDiskReady")},
	{"attach-ready", "A disk that is not ready cannot be attached.", "", code("compute.checkDiskReady")},
	{"attach-zone", "A disk attaches to VMs in its zone and location; zonal disks not to availability sets.", github + "jrudlin/Azure/pull/7", code("compute.checkPlacement")},
	{"attach-owned", "A disk that maxShares VMs have is 409 ConflictingUserInput.", github + "kubernetes-sigs/azuredisk-csi-driver/issues/1378", code("compute.checkOwners")},
	{"attach-race", "An attach of a shared disk during another VM's attach of it is 409 ConflictingUserInput.", github + "kubernetes-sigs/azuredisk-csi-driver/issues/1378", code("compute.checkOwners")},
	{"attach-count", "The VM size limits the number of data disks: 409 OperationNotAllowed.", github + "kubernetes-sigs/azuredisk-csi-driver/issues/1097", code("compute.tooManyDisks")},
	{"attach-lun", "A LUN is 0 to 63 and holds one disk.", github + "openshift/openshift-azure/issues/83", code("compute.VM.pickLUN", "compute.update.checkEntry")},
	{"attach-caching", "Host caching is None, ReadOnly or ReadWrite, and None for shared, Ultra, Premium v2 and large disks.", docs + "virtual-machines/premium-storage-performance", code("compute.cachingFor", "compute.checkCaching")},
	{"attach-size", "Premium disks need a VM size with premium storage, Ultra disks the VM's capability.", docs + "virtual-machines/disks-enable-ultra-ssd", code("compute.checkSKUOnVM")},
	{"attach-detaching", "An attach of a disk that is being detached is 409 AttachDiskWhileBeingDetached.", github + "kubernetes/kubernetes/issues/78657", code("compute.update.attachAgain")},
	{"attach-fixed", "An attached disk keeps its LUN.", "", code("compute.update.attachAgain")},
	{"attach-nothing", "attachDetachDataDisks needs a disk, and detachOption can only be ForceDetach.", spec, code("compute.Cloud.AttachDetach", "arm.Server.attachDetach")},
	{"detach-absent", "Detaching a disk that is not attached is 400 InvalidParameter, one that does not exist 404 NotFound.", "", code("compute.Cloud.detachOne", "compute.update.checkEntry")},
	{"detach-listed", "A disk that is being detached is listed with toBeDetached, by force also with detachOption, until it is off; or, with --goal-state, not from the moment at which the detach is accepted. In both cases a detach that fails leaves it at the host, and the disk names the VM.", "recorded: a forced detach by PUT with api-version 2022-08-01, and an orderly one; what a VM lists after a failure is not recorded", code("arm.renderStorage", "compute.update.markDetaching")},
	{"list-new", "A new entry of a whole list has createOption Attach and a disk.", spec, code("compute.update.checkEntry")},
	{"update-lane", "Updates of one VM wait, pre-empt one another or are refused, by the table above.", "", code("compute.Cloud.admit", "compute.Cloud.SetPower")},
	{"update-preempt", "An update that takes another's place ends it with OperationPreempted or DataDisksForceDetached.", github + "kubernetes-sigs/cloud-provider-azure/blob/master/pkg/consts/consts.go", code("compute.Cloud.commitUpdate", "compute.Cloud.deleteVM")},

	{"reservation-shared", "A shared disk (maxShares above 1) of any type takes SCSI persistent reservations.", shared, code("compute.Cloud.plug", "hypervisor.Hypervisor.SetShared")},
	{"reservation-unshared", "Another disk refuses the commands as unknown.", "", code("hypervisor.Hypervisor.Execute", "reservations.Unsupported")},
	{"reservation-commands", "Keys are registered (also ignoring the existing key), and the disk is reserved, released, pre-empted, cleared and read.", enableShared, code("reservations.State.Execute")},
	{"reservation-abort", "Pre-emption can abort the commands in flight: the page names fence_scsi, which requires PREEMPT AND ABORT.", shared, code("reservations.State.answerPreempt", "hypervisor.Hypervisor.enforce")},
	{"reservation-access", "There are six types, which say who reads and who writes.", shared, code("reservations.State.Allows")},
	{"reservation-initiator", "A VM is one initiator of the disk.", shared, code("hypervisor.Hypervisor.Execute")},
	{"reservation-detach", "What a VM has registered and reserved ends at some disks, and stays at others (`--reservations`), when the disk is detached from the VM, also by force, and when the VM is deallocated.", "", code("compute.Cloud.loseReservations", "hypervisor.Hypervisor.LoseReservations")},
	{"reservation-power", "It stays when the VM is stopped.", "", code("hypervisor.Hypervisor.PowerOff")},
	{"reservation-vm-deleted", "It stays when the VM is deleted; a new VM of the same name is another initiator.", "", code("hypervisor.Hypervisor.forgetInitiator")},
	{"reservation-durable", "It survives a restart of the storage.", "", code("hypervisor.Hypervisor.Execute")},
	{"reservation-copy", "A copy and a snapshot of a disk have no reservations.", "", code("hypervisor.Hypervisor.CreateDisk")},

	{"vm-size", "A VM has one of Azure's sizes.", spec, code("compute.unknownSize")},
	{"vm-zone", "A VM is in at most one zone of its location.", docs + "reliability/availability-zones-overview", code("compute.Cloud.newVM", "compute.Cloud.newScaleSet")},
	{"vm-fixed", "A VM keeps its location and zones: 409 PropertyChangeNotAllowed.", docs + "azure-resource-manager/troubleshooting/common-deployment-errors", code("compute.Cloud.updateVM")},
	{"vm-etag", "A write with another ETag than the VM's is 412.", spec + "/ComputeRP", code("compute.matchETag", "arm.Server.putVM")},
	{"vm-restart", "A deallocated VM cannot be restarted.", "", code("compute.Cloud.SetPower")},
	{"vm-hibernate", "A VM with the hibernation capability that runs can be hibernated: it is deallocated and HibernationState/Hibernated, its disks are Frozen and cannot be attached or detached, and it is started with its memory.", docs + "virtual-machines/hibernate-resume", code("compute.VM.mayHibernate", "compute.Cloud.admit", "compute.Cloud.diskView")},
	{"vm-join", "A VM joins only a flexible scale set.", docs + "virtual-machine-scale-sets/virtual-machine-scale-sets-orchestration-modes", code("compute.VM.join")},
	{"instance-unknown", "An instance that does not exist is 404 NotFound, one of a scale set that does not exist 404 ParentResourceNotFound.", github + "kubernetes-sigs/cloud-provider-azure/blob/master/pkg/consts/consts.go", code("compute.Cloud.mustVM")},
	{"instance-profiles", "An instance of a scale set has the OS disk, image and network profile of the model.", spec + "/ComputeRP", code("compute.scaleSetModel.shape")},
	{"scale-set-fixed", "A scale set keeps its orchestration mode.", "", code("compute.Cloud.reshape")},
	{"scale-set-delete", "A scale set is deleted after its instances.", "", code("compute.Cloud.completeScaleSet")},

	{"copy-source", "A copy names a disk or snapshot that exists, is ready and is in the same location; CopyStart may cross locations.", docs + "virtual-machines/disks-incremental-snapshots", code("compute.Cloud.resolveSource", "compute.Cloud.findSource", "compute.Cloud.snapshotSource")},
	{"copy-size", "A copy is not smaller than its source.", docs + "virtual-machines/snapshot-copy-managed-disk", code("compute.Cloud.createDisk")},
	{"copy-busy", "A source is not deleted while something is copied from it.", "", code("compute.Cloud.notASource", "compute.Cloud.copiedBySnapshot")},
	{"snapshot-sku", "A snapshot is Standard_LRS, Premium_LRS or Standard_ZRS.", spec, code("compute.checkSnapshotSKU")},
	{"snapshot-fixed", "A snapshot keeps its source and whether it is incremental.", "", code("compute.Cloud.updateSnapshot")},
	{"snapshot-instant", "Instant access lasts 60 to 300 minutes, for snapshots of Ultra and Premium v2 disks.", spec, code("compute.Cloud.grantInstantAccess")},
}

// Own are the functions that refuse what only the simulator refuses; README.md says so under "What is not simulated".
var Own = code("compute.Cloud.vmByPlaneKey", "compute.Cloud.DeleteGroup", "compute.Cloud.SetQuota", "compute.claimPlaneKey")
