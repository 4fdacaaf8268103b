package v1_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func newVolume(namespace, name string) *apiv1.AzVolume {
	return &apiv1.AzVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: apiv1.AzVolumeSpec{
			Origin:               apiv1.OriginProvisioned,
			Access:               apiv1.AccessSingleNode,
			CapacityBytes:        1 << 30,
			MaxMountReplicaCount: 1,
			Filesystem:           &apiv1.Filesystem{Type: "ext4"},
			Disk: apiv1.DiskParameters{
				SubscriptionID: "00000000-0000-0000-0000-000000000001",
				ResourceGroup:  "g",
				Name:           name,
				MaxShares:      2,
				CachingMode:    "None",
				DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
			},
		},
	}
}

func newAttachment(namespace, volume, node string) *apiv1.AzVolumeAttachment {
	return &apiv1.AzVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiv1.AttachmentName(volume, node)},
		Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: volume, NodeName: node, Role: apiv1.RoleReplica},
	}
}

// refused checks that the server refused a write, in the words of the rule.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
		t.Fatalf("want a refusal that says %q, got %v", words, err)
	}
}

func TestVolumeSpecRules(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	for name, test := range map[string]struct {
		change func(*apiv1.AzVolume)
		words  string
	}{
		"more replicas than shares": {func(v *apiv1.AzVolume) { v.Spec.MaxMountReplicaCount = 2 }, "maxShares - 1"},
		"replicas of a multi-node": {func(v *apiv1.AzVolume) { v.Spec.Access = apiv1.AccessMultiNode },
			"must be 0 for a MultiNode"},
		"no SKU":                            {func(v *apiv1.AzVolume) { v.Spec.Disk.SKUName = "" }, "spec.disk.skuName"},
		"a SKU of two words":                {func(v *apiv1.AzVolume) { v.Spec.Disk.SKUName = "Golden LRS" }, "should match"},
		"a subscription that is a path":     {func(v *apiv1.AzVolume) { v.Spec.Disk.SubscriptionID = "../../x" }, "should match"},
		"a resource group that is a path":   {func(v *apiv1.AzVolume) { v.Spec.Disk.ResourceGroup = "a/../b" }, "should match"},
		"a resource group that is a parent": {func(v *apiv1.AzVolume) { v.Spec.Disk.ResourceGroup = ".." }, "should match"},
		"a disk that is a path":             {func(v *apiv1.AzVolume) { v.Spec.Disk.Name = "x/y" }, "should match"},
		"a disk that is a parent":           {func(v *apiv1.AzVolume) { v.Spec.Disk.Name = ".." }, "should match"},
		"a zone that is no number":          {func(v *apiv1.AzVolume) { v.Spec.Disk.Zone = "z" }, "should match"},
		"a tier without a number":           {func(v *apiv1.AzVolume) { v.Spec.Disk.Tier = "Gold" }, "should match"},
		"a tag that is too long": {func(v *apiv1.AzVolume) {
			v.Spec.Disk.Tags = map[string]string{"k": strings.Repeat("v", 257)}
		}, "its value at most 256"},
		"no shares at all": {func(v *apiv1.AzVolume) { v.Spec.Disk.MaxShares = 0; v.Spec.MaxMountReplicaCount = -1 },
			"greater than or equal to 1"},
		"no size": {func(v *apiv1.AzVolume) { v.Spec.CapacityBytes = 0 }, "greater than or equal to 1"},
		"two sources": {func(v *apiv1.AzVolume) {
			v.Spec.Source = &apiv1.VolumeSource{DiskID: "a", SnapshotID: "b"}
		}, "exactly one"},
		"a name that is too long": {func(v *apiv1.AzVolume) { v.Name = strings.Repeat("a", 64) }, "at most 63"},
		"a source without an ID":  {func(v *apiv1.AzVolume) { v.Spec.Source = &apiv1.VolumeSource{} }, "exactly one"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolume(namespace, "bad")
			test.change(v)
			refused(t, c.Create(t.Context(), v), test.words)
		})
	}
}

// What Azure adds must be recorded by the version of the driver that is installed.
func TestValuesThatAzureMayAddAreTaken(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "later")
	v.Spec.Disk.DiskSettings = apiv1.DiskSettings{
		SKUName: "PremiumV2_ZRS", NetworkAccessPolicy: "AllowSome", PublicNetworkAccess: "Sometimes", Tier: "M10",
	}
	v.Spec.Disk.ActionOnDiskDelay, v.Spec.Disk.DiskEncryptionType = "Restart", "EncryptionAtRestWithMore"
	v.Spec.Filesystem, v.Spec.Disk.CachingMode = &apiv1.Filesystem{Type: "bcachefs"}, "WriteOnly"
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	v.Status.State, v.Status.Fencing = "Frozen", "NamespaceReservation"
	v.Status.Applied = &apiv1.AppliedSettings{DiskSettings: v.Spec.Disk.DiskSettings}
	if err := c.Status().Update(t.Context(), v); err != nil {
		t.Error(err)
	}
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n"}}
	d.Spec.VMID = "/vm"
	if err := c.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Status.Maintenance = &apiv1.NodeMaintenance{Events: []apiv1.MaintenanceEvent{{EventID: "e", Type: "Resize"}}}
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Error(err)
	}
}

func TestVolumeSpecIsImmutableButForCapacityReplicasAndSettings(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "fixed")
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	sector := int32(512)
	for name, test := range map[string]struct {
		change func(*apiv1.AzVolumeSpec)
		words  string
	}{
		"subscription": {func(s *apiv1.AzVolumeSpec) { s.Disk.SubscriptionID = "00000000-0000-0000-0000-000000000002" },
			"spec.disk.subscriptionID is immutable"},
		"resource group": {func(s *apiv1.AzVolumeSpec) { s.Disk.ResourceGroup = "other" },
			"spec.disk.resourceGroup is immutable"},
		"disk name":  {func(s *apiv1.AzVolumeSpec) { s.Disk.Name = "other" }, "spec.disk.name is immutable"},
		"location":   {func(s *apiv1.AzVolumeSpec) { s.Disk.Location = "westus" }, "spec.disk.location is immutable"},
		"zone":       {func(s *apiv1.AzVolumeSpec) { s.Disk.Zone = "9" }, "spec.disk.zone is immutable"},
		"shares":     {func(s *apiv1.AzVolumeSpec) { s.Disk.MaxShares = 3 }, "spec.disk.maxShares is immutable"},
		"filesystem": {func(s *apiv1.AzVolumeSpec) { s.Filesystem.Type = "xfs" }, "spec.filesystem.type is immutable"},
		"sector size": {func(s *apiv1.AzVolumeSpec) { s.Disk.LogicalSectorSizeBytes = &sector },
			"spec.disk.logicalSectorSizeBytes is immutable"},
		"encryption set": {func(s *apiv1.AzVolumeSpec) { s.Disk.DiskEncryptionSetID = "/subscriptions/x" },
			"spec.disk.diskEncryptionSetID is immutable"},
		"encryption type": {func(s *apiv1.AzVolumeSpec) { s.Disk.DiskEncryptionType = "x" },
			"spec.disk.diskEncryptionType is immutable"},
		"performance plus": {func(s *apiv1.AzVolumeSpec) { s.Disk.PerformancePlusEnabled = true },
			"spec.disk.performancePlusEnabled is immutable"},
		"frequent attaches": {func(s *apiv1.AzVolumeSpec) { s.Disk.OptimizedForFrequentAttach = true },
			"spec.disk.optimizedForFrequentAttach is immutable"},
		"block size":      {func(s *apiv1.AzVolumeSpec) { s.Filesystem.BlockSizeBytes = 1024 }, "spec.filesystem.blockSizeBytes is immutable"},
		"inode size":      {func(s *apiv1.AzVolumeSpec) { s.Filesystem.InodeSizeBytes = 512 }, "spec.filesystem.inodeSizeBytes is immutable"},
		"bytes per inode": {func(s *apiv1.AzVolumeSpec) { s.Filesystem.BytesPerInode = 8192 }, "spec.filesystem.bytesPerInode is immutable"},
		"number of inodes": {func(s *apiv1.AzVolumeSpec) { s.Filesystem.NumberOfInodes = 1000 },
			"spec.filesystem.numberOfInodes is immutable"},
		"action on delay": {func(s *apiv1.AzVolumeSpec) { s.Disk.ActionOnDiskDelay = "AutomaticReattach" },
			"spec.disk.actionOnDiskDelay is immutable"},
		"write accelerator": {func(s *apiv1.AzVolumeSpec) { s.Disk.WriteAcceleratorEnabled = true },
			"spec.disk.writeAcceleratorEnabled is immutable"},
		"origin": {func(s *apiv1.AzVolumeSpec) { s.Origin = apiv1.OriginAdopted }, "spec.origin is immutable"},
		"access": {func(s *apiv1.AzVolumeSpec) { s.Access, s.MaxMountReplicaCount = apiv1.AccessMultiNode, 0 },
			"spec.access is immutable"},
		"claim": {func(s *apiv1.AzVolumeSpec) { s.ClaimRef = &apiv1.ClaimReference{Namespace: "shop", Name: "other"} },
			"spec.claimRef is immutable"},
		"a source later": {func(s *apiv1.AzVolumeSpec) { s.Source = &apiv1.VolumeSource{DiskID: "a"} },
			"spec.source is immutable"},
		"a smaller disk": {func(s *apiv1.AzVolumeSpec) { s.CapacityBytes-- }, "may only grow"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := v.DeepCopy()
			test.change(&changed.Spec)
			refused(t, c.Update(t.Context(), changed), test.words)
		})
	}
	n := int64(4000)
	v.Spec.CapacityBytes, v.Spec.MaxMountReplicaCount = 2<<30, 0
	v.Spec.Disk.CachingMode, v.Spec.Disk.ModifiedCachingMode, v.Spec.Disk.IOPSPerGiB = "ReadOnly", "ReadOnly", 5
	v.Spec.Disk.DiskSettings = apiv1.DiskSettings{
		SKUName:             "PremiumV2_LRS",
		DiskIOPSReadWrite:   &n,
		DiskMBpsReadWrite:   &n,
		DiskIOPSReadOnly:    &n,
		DiskMBpsReadOnly:    &n,
		Tier:                "P30",
		BurstingEnabled:     true,
		NetworkAccessPolicy: "AllowPrivate",
		PublicNetworkAccess: "Disabled",
		DiskAccessID:        "/subscriptions/x",
		Tags:                map[string]string{"a": "b"},
	}
	if err := c.Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
}

func TestCapacityIsRevertedToWhatTheDiskHasAndNoFurther(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "reverted")
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	has := v.Spec.CapacityBytes
	v.Status.State, v.Status.SizeBytes = apiv1.VolumeCreated, has
	if err := c.Status().Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	v.Spec.CapacityBytes = has * 4
	if err := c.Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	smaller := v.DeepCopy()
	smaller.Spec.CapacityBytes = has - 1
	refused(t, c.Update(t.Context(), smaller), "no less than the size of the disk")
	v.Spec.CapacityBytes = has
	if err := c.Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
}

func TestOwnershipRules(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "owned")
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	write := func(node string, epoch int64, state apiv1.OwnershipState) error {
		v.Status.Primary = &apiv1.Ownership{NodeName: node, Epoch: epoch, State: state}
		if state == apiv1.OwnershipReleasing {
			v.Status.Primary.Cause = apiv1.CauseUnpublished
		}
		err := c.Status().Update(t.Context(), v)
		if err != nil {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
				t.Fatal(err)
			}
		}
		return err
	}
	for _, step := range []struct {
		node  string
		epoch int64
		state apiv1.OwnershipState
		words string
	}{
		{"a", 1, apiv1.OwnershipHeld, ""},
		{"b", 2, apiv1.OwnershipHeld, "only once it is Released"}, // law 1
		{"a", 0, apiv1.OwnershipHeld, "may only grow"},
		{"", 1, apiv1.OwnershipReleasing, "has a nodeName"},
		{"", 1, apiv1.OwnershipReleased, "is Releasing before it is Released"}, // law 3
		{"a", 1, apiv1.OwnershipReleasing, ""},
		{"b", 2, apiv1.OwnershipHeld, "only once it is Released"}, // law 3
		{"a", 1, apiv1.OwnershipHeld, "grows each time"},
		{"b", 1, apiv1.OwnershipReleasing, "only the node that has the ownership"},
		{"", 1, apiv1.OwnershipReleased, ""},
		{"b", 1, apiv1.OwnershipHeld, "grows each time"},
		{"b", 2, apiv1.OwnershipHeld, ""},
		{"b", 2, apiv1.OwnershipReleasing, ""},
		{"b", 3, apiv1.OwnershipHeld, ""},
	} {
		err := write(step.node, step.epoch, step.state)
		switch {
		case step.words == "" && err != nil:
			t.Fatalf("%+v: %v", step, err)
		case step.words != "":
			refused(t, err, step.words)
		}
	}
}

func TestOwnershipIsComparedAndSwapped(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "cas")
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	acquire := func(from *apiv1.AzVolume, node string) error {
		changed := from.DeepCopy()
		changed.Status.Primary = &apiv1.Ownership{NodeName: node, Epoch: 1, State: apiv1.OwnershipHeld}
		return c.Status().Patch(t.Context(), changed, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
	}
	if err := acquire(v, "a"); err != nil {
		t.Fatal(err)
	}
	if err := acquire(v, "b"); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want a conflict: two nodes acquired the ownership from one state", err)
	}
}

func TestAttachmentRules(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	a := newAttachment(namespace, "vol", "node")
	a.Spec.Role = apiv1.RolePrimary
	refused(t, c.Create(t.Context(), a), "epoch of its ownership")
	a.Spec.Epoch = 4
	if err := c.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*apiv1.AzVolumeAttachment)
		words  string
	}{
		"volume": {func(a *apiv1.AzVolumeAttachment) { a.Spec.VolumeName = "other" }, "spec.volumeName is immutable"},
		"node":   {func(a *apiv1.AzVolumeAttachment) { a.Spec.NodeName = "other" }, "spec.nodeName is immutable"},
		"epoch":  {func(a *apiv1.AzVolumeAttachment) { a.Spec.Epoch = 3 }, "may only grow"},
		"role":   {func(a *apiv1.AzVolumeAttachment) { a.Spec.Role = "Spare" }, "Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := a.DeepCopy()
			test.change(changed)
			refused(t, c.Update(t.Context(), changed), test.words)
		})
	}
	proof := &apiv1.ReleaseProof{Type: apiv1.ProofPreempted, Epoch: 4, ProvenTime: metav1.Now()}
	unproved := a.DeepCopy()
	unproved.Status.Proof = proof
	refused(t, c.Status().Update(t.Context(), unproved), "preemption is set for the type Preempted")
	a.Status.Proof = proof.DeepCopy()
	a.Status.Proof.Preemption = &apiv1.Preemption{NodeName: "helper", Key: "0x1"}
	if err := c.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*apiv1.AzVolumeAttachment){
		"a later epoch": func(a *apiv1.AzVolumeAttachment) { a.Spec.Epoch = 5 },
		"another role":  func(a *apiv1.AzVolumeAttachment) { a.Spec.Role = apiv1.RoleReplica },
	} {
		changed := a.DeepCopy()
		change(changed)
		t.Run("pre-empted, "+name, func(t *testing.T) { refused(t, c.Update(t.Context(), changed), "Preempted is deleted") })
	}
	a.Status.Proof.Type = apiv1.ProofDetached
	refused(t, c.Status().Update(t.Context(), a.DeepCopy()), "preemption is set for the type Preempted")
	a.Status.Proof.Preemption = nil
	if err := c.Status().Update(t.Context(), a); err != nil {
		t.Errorf("the proof of the detach: got %v, want no error", err)
	}
}

func TestStatusIsASubresource(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "sub")
	v.Status.State = apiv1.VolumeCreated
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if v.Status.State != "" {
		t.Fatal("a status was taken at creation")
	}
}

func TestAttachmentsAreSelectedByNodeVolumeAndRole(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	primary := newAttachment(namespace, "v1", "n1")
	primary.Spec.Role, primary.Spec.Epoch = apiv1.RolePrimary, 1
	for _, a := range []*apiv1.AzVolumeAttachment{primary, newAttachment(namespace, "v1", "n2"),
		newAttachment(namespace, "v2", "n1")} {
		if err := c.Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	for field, want := range map[string]int{
		"spec.nodeName=n1":   2,
		"spec.volumeName=v1": 2,
		"spec.nodeName=n2":   1,
		"spec.role=Primary":  1,
		"spec.role=Replica":  2,
	} {
		name, value, _ := strings.Cut(field, "=")
		var list apiv1.AzVolumeAttachmentList
		if err := c.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingFields{name: value}); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != want {
			t.Errorf("%s: %d found, want %d", field, len(list.Items), want)
		}
	}
}

func TestStagedVolumesMergeByName(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	d := &apiv1.AzDriverNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n"}}
	refused(t, c.Create(t.Context(), d), "vmID")
	d.Spec.VMID = "/vm"
	if err := c.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Status.StagedVolumes = []apiv1.StagedVolume{{
		VolumeName: "v",
		Epoch:      1,
		Phase:      apiv1.PhaseStaged,
	}, {VolumeName: "v", Epoch: 2, Phase: apiv1.PhaseStaged}}
	refused(t, c.Status().Update(t.Context(), d), "Duplicate value")
}

func TestOneGetAnswersWhereTheDiskIs(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "printed")
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	v.Status.State, v.Status.Primary = apiv1.VolumeCreated, &apiv1.Ownership{
		NodeName: "node-7",
		Epoch:    3,
		State:    apiv1.OwnershipHeld,
	}
	v.Status.ClaimRef = &apiv1.ClaimReference{Namespace: "shop", Name: "data", UID: "1"}
	v.Status.Replicas, v.Status.Size = &apiv1.ReplicaCount{Ready: 6, Wanted: 8}, resource.NewQuantity(100<<30, resource.BinarySI)
	if err := c.Status().Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	a := newAttachment(namespace, "printed", "node-8")
	if err := c.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	lun := int32(5)
	a.Status.State, a.Status.LUN = apiv1.AttachmentAttached, &lun
	a.Status.Conditions = []metav1.Condition{{
		Type: "Attached", Status: metav1.ConditionTrue, Reason: "AsWanted", LastTransitionTime: metav1.Now(),
	}}
	if err := c.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string][]string{
		"azvolumes":           {"printed", "shop", "data", "Created", "100Gi", "Premium_LRS", "node-7", "3", "6", "8"},
		"azvolumeattachments": {"printed", "node-8", "Replica", "Attached", "AsWanted", "5"},
	} {
		row := table(t, namespace, kind)
		for _, cell := range want {
			if !strings.Contains(row, "|"+cell+"|") {
				t.Errorf("%s: %q is not in %s", kind, cell, row)
			}
		}
	}
	var found apiv1.AzVolumeList
	of := client.MatchingFields{"status.claimRef.namespace": "shop", "status.claimRef.name": "data"}
	if err := c.List(t.Context(), &found, client.InNamespace(namespace), of); err != nil || len(found.Items) != 1 {
		t.Errorf("the AzVolume of a claim: got %d and %v, want 1", len(found.Items), err)
	}
}

// table returns the first row of what `kubectl get` prints.
func table(t *testing.T, namespace, resource string) string {
	t.Helper()
	config := apiserver.Config(t)
	config.GroupVersion = &schema.GroupVersion{Group: apiv1.GroupName, Version: "v1"}
	config.APIPath = "/apis"
	config.NegotiatedSerializer = negotiated(t)
	rc, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := rc.Get().Namespace(namespace).Resource(resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(context.Background()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var printed metav1.Table
	if err := json.Unmarshal(raw, &printed); err != nil {
		t.Fatal(err)
	}
	row := "|"
	for _, cell := range printed.Rows[0].Cells {
		text, err := json.Marshal(cell)
		if err != nil {
			t.Fatal(err)
		}
		row += strings.Trim(string(text), `"`) + "|"
	}
	return row
}

// kubectl scale is how users change a number of replicas.
func TestTheReplicasOfAVolumeAreScaled(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	v := newVolume(namespace, "scaled")
	expect.Must(t, c.Create(t.Context(), v))
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}
	expect.Must(t, c.SubResource("scale").Update(t.Context(), v, client.WithSubResourceBody(scale)))
	expect.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(v), v))
	if v.Spec.MaxMountReplicaCount != 0 {
		t.Errorf("got %d wanted replicas, want 0", v.Spec.MaxMountReplicaCount)
	}
	scale.Spec.Replicas = 2
	refused(t, c.SubResource("scale").Update(t.Context(), v, client.WithSubResourceBody(scale)), "at most spec.disk.maxShares - 1")
}
