package imds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

type object = map[string]any

// document is the body of /metadata/instance. As on Azure every value in it is a string, numbers
// and booleans too, and what a VM does not have is "".
func (i Instance) document() (any, error) {
	raw, err := json.Marshal(object{
		"compute": i.compute(),
		"network": object{"interface": []object{}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode instance: %w", err)
	}
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("decode instance: %w", err)
	}
	return document, nil
}

func (i Instance) compute() object {
	var tags []string
	tagList := []object{}
	for _, name := range slices.Sorted(maps.Keys(i.Tags)) {
		tags = append(tags, name+":"+i.Tags[name])
		tagList = append(tagList, object{"name": name, "value": i.Tags[name]})
	}
	return object{
		"azEnvironment":              "AzurePublicCloud",
		"customData":                 "",
		"evictionPolicy":             "",
		"isHostCompatibilityLayerVm": "false",
		"location":                   i.Location,
		"name":                       i.Name,
		"offer":                      "",
		"osProfile": object{
			"adminUsername":                 "",
			"computerName":                  i.ComputerName,
			"disablePasswordAuthentication": "true",
		},
		"osType":           i.OSType,
		"placementGroupId": "",
		"plan": object{
			"name":      "",
			"product":   "",
			"publisher": "",
		},
		"platformFaultDomain":  "0",
		"platformUpdateDomain": "0",
		"priority":             "",
		"provider":             "Microsoft.Compute",
		"publicKeys":           []object{},
		"publisher":            "",
		"resourceGroupName":    i.ResourceGroup,
		"resourceId":           i.ResourceID,
		"sku":                  "",
		"storageProfile":       i.storage(),
		"subscriptionId":       i.SubscriptionID,
		"tags":                 strings.Join(tags, ";"),
		"tagsList":             tagList,
		"userData":             "",
		"version":              "",
		"vmId":                 i.VMID,
		"vmScaleSetName":       i.ScaleSet,
		"vmSize":               i.Size,
		"zone":                 i.Zone,
	}
}

func (i Instance) storage() object {
	disks := []object{}
	for _, disk := range slices.SortedFunc(slices.Values(i.DataDisks), func(a, b Disk) int { return cmp.Compare(a.LUN, b.LUN) }) {
		entry := disk.document()
		entry["lun"] = strconv.Itoa(disk.LUN)
		disks = append(disks, entry)
	}
	osDisk := i.OSDisk.document()
	osDisk["osType"] = i.OSType
	return object{
		"dataDisks": disks,
		"imageReference": object{
			"id":        "",
			"offer":     "",
			"publisher": "",
			"sku":       "",
			"version":   "",
		},
		"osDisk":       osDisk,
		"resourceDisk": object{"size": "0"},
	}
}

func (d Disk) document() map[string]any {
	size := ""
	if d.SizeGB > 0 {
		size = strconv.FormatInt(d.SizeGB, 10)
	}
	return map[string]any{
		"caching":                 d.Caching,
		"createOption":            d.CreateOption,
		"diskSizeGB":              size,
		"image":                   map[string]any{"uri": ""},
		"managedDisk":             map[string]any{"id": d.ResourceID, "storageAccountType": d.SKU},
		"name":                    d.Name,
		"vhd":                     map[string]any{"uri": ""},
		"writeAcceleratorEnabled": "false",
	}
}

// lookUp follows the path into the document; a list is entered by index. Names are compared as
// Azure does, whatever their case.
func lookUp(document any, path string) (any, bool) {
	for segment := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if segment == "" {
			continue
		}
		switch node := document.(type) {
		case map[string]any:
			found := false
			for name, value := range node {
				if strings.EqualFold(name, segment) {
					document, found = value, true
					break
				}
			}
			if !found {
				return nil, false
			}
		case []any:
			index, err := strconv.Atoi(segment)
			if err != nil || index < 0 || index >= len(node) {
				return nil, false
			}
			document = node[index]
		default:
			return nil, false
		}
	}
	return document, true
}

// text is the answer in the format "text": a leaf's value, or the names under a node, those of
// nodes with a slash.
func text(node any) string {
	var lines []string
	switch node := node.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(node)) {
			lines = append(lines, entryName(name, node[name]))
		}
	case []any:
		for i, value := range node {
			lines = append(lines, entryName(strconv.Itoa(i), value))
		}
	default:
		return fmt.Sprint(node)
	}
	return strings.Join(lines, "\n")
}

func entryName(name string, value any) string {
	if isLeaf(value) {
		return name
	}
	return name + "/"
}

func isLeaf(node any) bool {
	switch node.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}
