package volumeparams

import (
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
)

type key = paramtable.Key[Parameters]

// Keys returns every parameter that Parse knows, for the reference documentation.
func Keys() paramtable.Table[Parameters] {
	return append(slices.Clone(table), key{
		Name:    deviceSettingPrefix + "<path>",
		Allowed: allowedSettingPath,
		Set:     func(*Parameters, string) {},
		Effect:  "with perfProfile advanced: the node writes the value to the file before the volume is mounted. What the kernel refuses fails the mount.",
		V1:      "The prefix is compared with regard to case. A symbolic link may lead elsewhere, as in device/driver/unbind.",
	})
}

const (
	claimNameKey      = "csi.storage.k8s.io/pvc/name"
	claimNamespaceKey = "csi.storage.k8s.io/pvc/namespace"
	volumeNameKey     = "csi.storage.k8s.io/pv/name"

	unknownToV1 = "Unknown."

	cachingKey   = "cachingMode"
	iopsKey      = "diskIOPSReadWrite"
	iopsPerGBKey = "iopsPerGB"

	customerKey  = "EncryptionAtRestWithCustomerKey"
	allowPrivate = "AllowPrivate"
)

// FSTypes are the types of filesystem that a volume can have.
var FSTypes = []string{"ext4", "xfs", "ext3", "ext2", "btrfs"}

var (
	cachingModes = []string{CachingNone, cachingReadOnly, cachingReadWrite}
	profiles     = []string{profileNone, ProfileBasic, ProfileAdvanced}
	lenient      = "Takes any text, and only true turns it on."
	laterRefusal = "Is not checked; Azure refuses the disk later."
	table        = paramtable.Table[Parameters](
		slices.Concat(diskKeys(), placeKeys(), tagKeys(), filesystemKeys(), performanceKeys(), deviceKeys(), accessKeys(),
			otherKeys()))
	reservationModes = map[string]apiv1.ReservationMode{"auto": apiv1.ReservationsAuto, "disabled": apiv1.ReservationsDisabled}
	anyCaseOf        = func(values []string) string { return strings.Join(values, ", ") + " (in any case)" }
	onlyInternals    = "Is refused as Internal for other SKUs."
)

// diskKeys are the parameters for the kind of the disk, and for its use by nodes.
func diskKeys() []key {
	return []key{
		paramtable.OneOf("skuName", skuNames, StandardSSDLRS, func(p *Parameters, v string) { p.SKUName = v },
			"storageAccountType").
			About("The SKU of the disk.", "If both names are given with different values, either may win.").
			Changing("Converts the disk. Not to or from UltraSSD_LRS, not from PremiumV2_LRS, and not between LRS and ZRS."),
		paramtable.OneOf(cachingKey, cachingModes,
			"ReadOnly; None for shared disks, UltraSSD_LRS, PremiumV2_LRS and from 4096 GiB",
			func(p *Parameters, v string) { p.CachingMode = v }).
			About("The host caching of the attachments. None whatever was asked for from 4096 GiB.",
				"Is ReadOnly by default for UltraSSD_LRS and shared disks, too, which Azure refuses to attach.").
			Changing("Sets the host caching from the next attach on: Azure changes that of an attached disk by a detach and an attach. " +
				"Only None for shared disks, UltraSSD_LRS, PremiumV2_LRS and from 4096 GiB."),
		key{
			Name:    "fsType",
			Allowed: anyCaseOf(FSTypes),
			Default: "the capability's, or else ext4",
			Check:   paramtable.AnyCase(FSTypes),
			Set:     func(p *Parameters, v string) { p.FSType = strings.ToLower(v) },
		}.
			About("The filesystem that a blank disk gets. A disk that carries another one is not mounted.",
				"Is checked by the node only. ntfs on Windows nodes."),
		paramtable.Integer("maxShares", 1, 15, "1", func(p *Parameters, v int64) { p.MaxShares = int32(v) }).
			About("How many VMs can have the disk attached at once; the most depends on SKU and size. What the volume itself does not use goes to replicas.", laterRefusal),
		paramtable.Integer("maxMountReplicaCount", 0, 14, "maxShares - 1; 0 for multi-node access modes",
			func(p *Parameters, v int64) { n := int32(v); p.MaxMountReplicaCount = &n }).
			About("How many nodes keep the disk attached besides the one that uses it.", unknownToV1),
		key{
			Name:    "persistentReservations",
			Allowed: "auto, disabled (in any case)",
			Default: "auto",
			Check:   paramtable.AnyCase([]string{"auto", "disabled"}),
			Set:     func(p *Parameters, v string) { p.PersistentReservations = reservationModes[strings.ToLower(v)] },
		}.
			About("Whether the node that uses a shared disk reserves it, so that a lost node is fenced in milliseconds. disabled leaves the "+
				"reservations of the disk to other programs, as the application of a raw block volume, and Azure's forced detach fences.",
				unknownToV1),
	}
}

// placeKeys are the parameters for the place and the name of the disk.
func placeKeys() []key {
	return []key{
		key{
			Name:    "location",
			Allowed: "a region, as in eastus",
			Default: "that of the zone, or else the cluster's",
			Check:   paramtable.IsLocation,
			Set:     func(p *Parameters, v string) { p.Location = paramtable.Location(v) },
		}.
			About("The region of the disk; the nodes must be there.", ""),
		key{
			Name:    "resourceGroup",
			Allowed: "1 to 90 letters, digits, _, -, ., ( and ), with no . first",
			Default: "the cluster's",
			Check:   paramtable.IsResourceGroup,
			Set:     func(p *Parameters, v string) { p.ResourceGroup = v },
		}.
			About("The resource group of the disk. It must exist.", ""),
		key{
			Name:    "subscriptionID",
			Allowed: "a subscription ID, which is a GUID",
			Default: "the cluster's",
			Check:   paramtable.IsSubscription,
			Set:     func(p *Parameters, v string) { p.SubscriptionID = v },
		}.
			About("The subscription of the disk.", ""),
		paramtable.Text("diskName", "a name", "the volume's name", func(p *Parameters, v string) { p.Name = v }).
			About("The name of the disk. `${pvc.metadata.name}`, `${pvc.metadata.namespace}` and `${pv.metadata.name}` are replaced, also without `metadata.`. "+
				"A name that Azure does not accept is corrected and gets a hash of the original at its end.",
				"Cuts a long name off, and makes a random one of one with other characters."),
	}
}

// tagKeys are the parameters for the tags of the disk.
func tagKeys() []key {
	return []key{
		paramtable.Text("tags", "key=value, separated by commas or tagValueDelimiter; at most 45", "",
			func(p *Parameters, v string) { p.tags = v }).
			About("Tags of the disk. Values may hold `=`, the templates of diskName, and `${pvc.labels.KEY}`, `${pvc.annotations.KEY}`, "+
				"`${namespace.labels.KEY}` and `${namespace.annotations.KEY}`; the disk gets no tag for which such a key is missing. "+
				"Names that differ in case only are one tag, as at Azure: the later value counts.",
				"Has the templates of names only.").
			Changing("Sets the tags that it names. Other tags remain unchanged, and the driver's own tags cannot be named. " +
				"Values cannot hold templates of labels and annotations."),
		key{
			Name:    "tagValueDelimiter",
			Allowed: "a text other than =",
			Default: ",",
			Check:   paramtable.IsTagDelimiter,
			Set:     func(p *Parameters, v string) { p.tagDelimiter = v },
		}.
			About("What separates the tags.", "").
			Changing("What separates the tags."),
	}
}

// filesystemKeys are the options with which the filesystem is made.
func filesystemKeys() []key {
	number := func(name string, values []string, set func(*Parameters, int64)) key {
		return paramtable.OneOf(name, values, "mkfs's", func(p *Parameters, v string) {
			n, _ := strconv.ParseInt(v, 10, 64) // one of the values
			set(p, n)
		})
	}
	return []key{
		number("blockSize", []string{"1024", "2048", "4096"}, func(p *Parameters, n int64) { p.BlockSizeBytes = n }).
			About("The size of a block in bytes; ext2, ext3, ext4 and xfs. At least the logical sector size of the disk.",
				unknownToV1),
		number("inodeSize", []string{"128", "256", "512", "1024", "2048", "4096"},
			func(p *Parameters, n int64) { p.InodeSizeBytes = n }).
			About("The size of an inode in bytes; ext2, ext3 and ext4 up to the block size, xfs from 512 to half the block size.",
				unknownToV1),
		paramtable.Integer("bytesPerInode", 1024, 64<<20, "mkfs's", func(p *Parameters, n int64) { p.BytesPerInode = n }).
			About("There is one inode for so many bytes; ext2, ext3 and ext4. At least the block size and twice the inode size.",
				unknownToV1),
		paramtable.Integer("numberOfInodes", 1, 1<<32-1, "mkfs's", func(p *Parameters, n int64) { p.NumberOfInodes = n }).
			About("The number of inodes, rounded by mkfs; ext2, ext3 and ext4. At most one for each block, and for twice the inode size. Not with bytesPerInode.", unknownToV1),
	}
}

// performanceKeys are the parameters for the performance of the disk.
func performanceKeys() []key {
	whole := func(name, fallback string, set func(*Parameters, int64)) key {
		return paramtable.Integer(name, 1, 1<<31, fallback, set)
	}
	return []key{
		whole(iopsKey, "iopsPerGB's; UltraSSD_LRS with neither these nor diskMBpsReadWrite: 1 for each GiB, from 500 to 160000; else Azure's",
			func(p *Parameters, v int64) { p.DiskIOPSReadWrite = &v }).
			About("Provisioned IOPS of UltraSSD_LRS and PremiumV2_LRS; the range depends on the size.", onlyInternals).
			Changing("Sets the IOPS of UltraSSD_LRS and PremiumV2_LRS, also in use. They do not grow with the disk from then on."),
		paramtable.Integer(iopsPerGBKey, 1, maxIOPSPerGiB, "1 where UltraSSD_LRS gets the default of diskIOPSReadWrite",
			func(p *Parameters, v int64) { p.IOPSPerGiB = v }).
			About("IOPS for each GiB of UltraSSD_LRS and PremiumV2_LRS, instead of diskIOPSReadWrite: within the limits of the size, and raised when the disk grows. "+
				"The throughput does not follow.", unknownToV1).
			Changing("Sets the IOPS to so many for each GiB, within the limits of the size, and raises them when the disk grows."),
		whole("diskMBpsReadWrite",
			"UltraSSD_LRS with neither this nor diskIOPSReadWrite: 100, or IOPS / 250 if that is more; else Azure's",
			func(p *Parameters, v int64) { p.DiskMBpsReadWrite = &v }).
			About("Provisioned throughput of UltraSSD_LRS and PremiumV2_LRS in MB/s; the range depends on the IOPS.",
				onlyInternals).
			Changing("Sets the throughput of UltraSSD_LRS and PremiumV2_LRS, also in use."),
		whole("diskIOPSReadOnly", "Azure's", func(p *Parameters, v int64) { p.DiskIOPSReadOnly = &v }).
			About("IOPS of all VMs together that share an UltraSSD_LRS or PremiumV2_LRS disk for reading only.", unknownToV1).
			Changing("Sets the IOPS of the VMs that share an UltraSSD_LRS or PremiumV2_LRS disk for reading only."),
		whole("diskMBpsReadOnly", "Azure's", func(p *Parameters, v int64) { p.DiskMBpsReadOnly = &v }).
			About("Throughput of all VMs together that share an UltraSSD_LRS or PremiumV2_LRS disk for reading only, in MB/s.",
				unknownToV1).
			Changing("Sets the throughput of the VMs that share an UltraSSD_LRS or PremiumV2_LRS disk for reading only."),
		key{
			Name:    "tier",
			Allowed: "P1 to P80: that of the size or a higher one",
			Default: "that of the size",
			Check:   isTier,
			Set:     func(p *Parameters, v string) { p.Tier = strings.ToUpper(v) },
		}.
			About("The performance tier of Premium_LRS and Premium_ZRS.", unknownToV1).
			Changing("Sets the performance tier of Premium_LRS and Premium_ZRS, also in use unless the disk is shared."),
		paramtable.Boolean("enableBursting", func(p *Parameters, v bool) { p.BurstingEnabled = v }).
			About("On-demand bursting of Premium_LRS and Premium_ZRS above 512 GiB, not of shared disks.",
				lenient+" "+laterRefusal).
			Changing("Turns on-demand bursting of Premium_LRS and Premium_ZRS above 512 GiB on, while the disk is not attached, or off, 12 hours later at the earliest."),
		paramtable.Boolean("enablePerformancePlus", func(p *Parameters, v bool) { p.PerformancePlusEnabled = v }).
			About("Azure's Performance Plus, not for UltraSSD_LRS and PremiumV2_LRS. The disk has at least 513 GiB then.", ""),
	}
}

// deviceKeys are the parameters for how the nodes and Azure use the device.
func deviceKeys() []key {
	return []key{
		paramtable.OneOf("logicalSectorSize", []string{"512", "4096"}, "4096",
			func(p *Parameters, v string) {
				n := map[string]int32{"512": 512, "4096": 4096}[v]
				p.LogicalSectorSizeBytes = &n
			}).
			About("The sector size of UltraSSD_LRS and PremiumV2_LRS in bytes.", laterRefusal),
		paramtable.Boolean("writeAcceleratorEnabled", func(p *Parameters, v bool) { p.WriteAcceleratorEnabled = v }).
			About("Attaches the disk with the write accelerator of M-series VMs: Premium_LRS and Premium_ZRS, not shared, caching None or ReadOnly. "+
				"It is kept on the disk as the tag `"+tagWriteAccelerator+"`.", lenient),
		paramtable.Boolean("optimizedForFrequentAttach", func(p *Parameters, v bool) { p.OptimizedForFrequentAttach = v }).
			About("Tells Azure that the disk moves more than five times a day.", unknownToV1),
		paramtable.OneOf("actionOnDiskDelay", []string{"None", "AutomaticReattach"}, "Azure's",
			func(p *Parameters, v string) { p.ActionOnDiskDelay = v }).
			About("What Azure does when the disk is slow to answer: nothing, or detach and attach it again.", unknownToV1),
		key{
			Name:    profileKey,
			Allowed: anyCaseOf(profiles),
			Default: profileNone,
			Check:   paramtable.AnyCase(profiles),
			Set:     func(p *Parameters, v string) { p.Tuning.Profile = strings.ToLower(v) },
		}.
			About("The kernel's settings of the device: `basic` has the node compute them from the disk's IOPS and throughput, `advanced` takes them from "+deviceSettingPrefix+"… .",
				"Needs a flag of the driver. `basic` is for Premium and Standard SSD only, and takes the VM's size into account."),
	}
}

// accessKeys are the parameters for encryption and export of the disk.
func accessKeys() []key {
	return []key{
		paramtable.ResourceID("diskEncryptionSetID", func(p *Parameters, v string) { p.DiskEncryptionSetID = v }).
			About("The disk encryption set of the disk, also when it is attached.",
				"A disk without one is attached with that of the VM's OS disk."),
		paramtable.OneOf("diskEncryptionType",
			[]string{customerKey, "EncryptionAtRestWithPlatformAndCustomerKeys", "EncryptionAtRestWithPlatformKey"},
			customerKey+" if diskEncryptionSetID is set", func(p *Parameters, v string) { p.DiskEncryptionType = v }).
			About("The encryption at rest; only with diskEncryptionSetID.", ""),
		paramtable.OneOf("networkAccessPolicy", []string{"AllowAll", "DenyAll", allowPrivate}, "DenyAll",
			func(p *Parameters, v string) { p.NetworkAccessPolicy = v }).
			About("From which networks the disk can be exported. AllowPrivate needs diskAccessID.", "").
			Changing("Sets from which networks the disk can be exported. AllowPrivate needs diskAccessID; another policy removes it."),
		paramtable.OneOf("publicNetworkAccess", []string{"Enabled", "Disabled"}, "Disabled",
			func(p *Parameters, v string) { p.PublicNetworkAccess = v }).
			About("Whether the disk can be exported over the internet.", "").
			Changing("Sets whether the disk can be exported over the internet."),
		paramtable.ResourceID("diskAccessID", func(p *Parameters, v string) { p.DiskAccessID = v }).
			About("The disk access resource; only with networkAccessPolicy AllowPrivate.", "").
			Changing("Sets the disk access resource; only with networkAccessPolicy AllowPrivate."),
	}
}

// otherKeys are the parameters that the provisioner sets, and parameters of the V1 driver that have
// no effect here.
func otherKeys() []key {
	const forTag, fills = "Becomes a tag, and fills the templates.", "Fills the templates in tags."
	return []key{
		paramtable.Text(claimNameKey, "set by the provisioner", "",
			func(p *Parameters, v string) { p.ClaimName = v }).About(forTag, "").Changing(fills),
		paramtable.Text(claimNamespaceKey, "set by the provisioner", "",
			func(p *Parameters, v string) { p.ClaimNamespace = v }).About(forTag, "").Changing(fills),
		paramtable.Text(volumeNameKey, "set by the provisioner", "",
			func(p *Parameters, v string) { p.VolumeName = v }).About(forTag, "").Changing(fills),
		key{
			Name:    "kind",
			Allowed: "any text",
			Default: "managed",
		}.About("none: every disk is a managed one", ""),
		key{
			Name:    "attachDiskInitialDelay",
			Allowed: "a whole number",
			Check:   paramtable.IsInteger(-1<<31, 1<<31),
		}.
			About("none: attach requests for a VM are batched without a delay",
				"The volume's value becomes that of every later attach of the driver."),
		key{Name: "userAgent", Allowed: "any text"}.About("none", "Is sent to Azure in the calls for the volume."),
		key{Name: "enableAsyncAttach", Allowed: "any text"}.About("none", ""),
		key{Name: "zoned", Allowed: "any text"}.About("none", ""),
	}
}
