package sdk_test

import (
	"net/http"
	"strings"
	"testing"
)

const groupsVersion = "?api-version=2021-04-01"

func groupID(name string) string { return "/subscriptions/" + subscription + "/resourceGroups/" + name }

// ofGroup is the ID of a resource in another resource group than that of the test.
func ofGroup(name, kind, resource string) string {
	return groupID(name) + "/providers/Microsoft.Compute/" + kind + "/" + resource
}

// deleteGroup begins to delete a group, and returns the path at which its result is.
func (s *simulator) deleteGroup(name string) string {
	s.t.Helper()
	answer, _ := s.send("DELETE", groupID(name)+groupsVersion, "")
	expect(s.t, "status of a deletion", answer.StatusCode, http.StatusAccepted)
	expect(s.t, "Azure-AsyncOperation", answer.Header.Get("Azure-AsyncOperation"), "")
	return strings.TrimPrefix(answer.Header.Get("Location"), s.url)
}

// awaitGroup waits until the deletion of a group has ended, and returns its answer.
func (s *simulator) awaitGroup(result string) (status int, code any) {
	s.t.Helper()
	s.eventually("the deletion of the group has ended", func() bool {
		answer, body := s.send("GET", result, "")
		status, code = answer.StatusCode, at(body, "error", "code")
		return status != http.StatusAccepted
	})
	return status, code
}

func TestAResourceGroupIsDeletedWithItsContents(t *testing.T) {
	s := start(t)
	s.send("PUT", groupID("other")+groupsVersion, `{"location": "eastus"}`)
	const disks = "?api-version=2025-01-02"
	s.send("PUT", ofGroup("other", "disks", "a")+disks, emptyDisk)
	s.send("PUT", ofGroup("other", "diskEncryptionSets", "e")+disks, `{"location": "eastus"}`)
	s.send("PUT", ofGroup("other", "virtualMachines", "node"), smallVM)
	s.send("PUT", ofGroup("other", "virtualMachineScaleSets", "pool"), onePool)
	s.settle()
	s.send("POST", ofGroup("other", "virtualMachines", "node")+"/attachDetachDataDisks",
		`{"dataDisksToAttach": [{"diskId": "`+ofGroup("other", "disks", "a")+`"}]}`)
	s.settle()
	s.send("PUT", ofGroup("other", "snapshots", "s")+disks, `{"location": "eastus", "properties": {"incremental": true,
		"creationData": {"createOption": "Copy", "sourceResourceId": "`+ofGroup("other", "disks", "a")+`"}}}`)

	s.fault(map[string]any{"stage": "operation", "operation": "vm.delete", "delay": "200ms", "times": 1})
	result := s.deleteGroup("other")
	_, group := s.send("GET", groupID("other")+groupsVersion, "")
	expect(t, "state of the group", at(group, "properties", "provisioningState"), "Deleting")
	refused, fault := s.send("PUT", ofGroup("other", "disks", "b")+disks, emptyDisk)
	expect(t, "status of a PUT in it", refused.StatusCode, http.StatusConflict)
	expect(t, "code", at(fault, "error", "code"), "ResourceGroupBeingDeleted")
	expect(t, "a second deletion", s.deleteGroup("other"), result)
	status, _ := s.awaitGroup(result)
	expect(t, "end of the deletion", status, http.StatusOK)

	s.send("PUT", groupID("other")+groupsVersion, `{"location": "eastus"}`)
	for _, kind := range []string{"disks", "snapshots", "virtualMachines", "virtualMachineScaleSets"} {
		_, list := s.send("GET", strings.TrimSuffix(ofGroup("other", kind, ""), "/")+disks, "")
		expect(t, kind+" that are left", at(list, "value", 0, "id"), nil)
	}
	gone, _ := s.send("GET", ofGroup("other", "diskEncryptionSets", "e")+disks, "")
	expect(t, "status of the encryption set", gone.StatusCode, http.StatusNotFound)
}

func TestAResourceGroupStaysWithADiskInUse(t *testing.T) {
	s := start(t)
	s.send("PUT", groupID("other")+groupsVersion, `{"location": "eastus"}`)
	s.send("PUT", ofGroup("other", "disks", "a")+"?api-version=2025-01-02", emptyDisk)
	s.vm("node", "Standard_D4s_v5")
	s.settle()
	s.send("POST", vmID("node")+"/attachDetachDataDisks",
		`{"dataDisksToAttach": [{"diskId": "`+ofGroup("other", "disks", "a")+`"}]}`)
	s.settle()
	status, code := s.awaitGroup(s.deleteGroup("other"))
	expect(t, "status of the end", status, http.StatusConflict)
	expect(t, "code", code, "ResourceGroupDeletionBlocked")
	_, group := s.send("GET", groupID("other")+groupsVersion, "")
	expect(t, "state of the group", at(group, "properties", "provisioningState"), "Succeeded")
}
