package verify

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// play plays one rule. want is what azuresim shows, which a test holds.
type play struct {
	rule string
	want string
	run  func(ctx context.Context, w *world) (got string, err error)
}

type object = map[string]any

func allPlays() []play {
	return append(append(requestPlays(), diskPlays()...), vmPlays()...)
}

// refusal plays a rule by one request.
func refusal(rule, want, method string, path func(w *world) string, body any, header ...string) play {
	return play{rule, want, func(ctx context.Context, w *world) (string, error) {
		a, err := w.do(ctx, method, path(w), body, header...)
		return a.String(), err
	}}
}

// after is a play that needs something first.
func (p play) after(first func(ctx context.Context, w *world) error) play {
	run := p.run
	p.run = func(ctx context.Context, w *world) (string, error) {
		if err := first(ctx, w); err != nil {
			return "", err
		}
		return run(ctx, w)
	}
	return p
}

// newDisk is the path of a disk that is not made, and ofDisk of one that is.
func newDisk(w *world) string { return w.disk("refused") + "?api-version=" + diskVersion }

func ofDisk(name string) func(*world) string {
	return func(w *world) string { return w.disk(name) + "?api-version=" + diskVersion }
}

// spec is an empty disk of 4 GiB in the run's location, with further properties; those of the
// outermost object begin with a slash.
func (w *world) spec(changes object) object {
	properties := object{"creationData": object{"createOption": "Empty"}, "diskSizeGB": 4}
	disk := object{
		"location":   w.Location,
		"sku":        object{"name": "Premium_LRS"},
		"properties": properties,
	}
	for name, value := range changes {
		if top, ok := strings.CutPrefix(name, "/"); ok {
			disk[top] = value
		} else {
			properties[name] = value
		}
	}
	return disk
}

func makeDisk(name string, changes object) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		return w.ensure(ctx, w.disk(name), diskVersion, w.spec(changes))
	}
}

// badDisk plays a rule by a disk that must be refused.
func badDisk(rule, want string, changes object) play {
	return play{rule, want, func(ctx context.Context, w *world) (string, error) {
		a, err := w.do(ctx, http.MethodPut, newDisk(w), w.spec(changes))
		return a.String(), err
	}}
}

func requestPlays() []play {
	at := func(path string) func(*world) string {
		return func(w *world) string {
			return strings.NewReplacer("{sub}", w.Subscription, "{group}", w.group).Replace(path) + "?api-version=" + diskVersion
		}
	}
	const disks = "/providers/Microsoft.Compute/disks/none"
	get := http.MethodGet
	return []play{
		refusal("resource-unknown", "404 ResourceNotFound", get, ofDisk("none"), nil),
		refusal("group-unknown", "404 ResourceGroupNotFound", get, at("/subscriptions/{sub}/resourceGroups/{group}-none"+disks),
			nil),
		refusal("subscription-malformed", "400 InvalidSubscriptionId", get,
			at("/subscriptions/mine/resourceGroups/{group}"+disks), nil),
		refusal("api-version-missing", "400 MissingApiVersionParameter", get, func(w *world) string { return w.disk("none") },
			nil),
		refusal("api-version", "400 NoRegisteredProviderFound", get,
			func(w *world) string { return w.disk("none") + "?api-version=2025-01-03" }, nil),
		refusal("api-version-groups", "400 InvalidApiVersionParameter", get,
			func(w *world) string { return w.groupPath(w.group) + "?api-version=2025-01-03" }, nil),
		refusal("body", "400 InvalidRequestContent", http.MethodPut, newDisk, "{"),
		badDisk("member-unknown", "400 BadRequest", object{"colour": "red"}),
		badDisk("member-unknown", "400 InvalidRequestContent", object{"/colour": "red"}),
		badDisk("location-missing", "400 LocationRequired", object{"/location": nil}),
		badDisk("location-unknown", "400 LocationNotAvailableForResourceType", object{"/location": "atlantis"}),
		badDisk("parameter-missing", "400 InvalidParameter", object{"diskSizeGB": nil}),
		{"quota-manager", "at most 200 writes, at most 3000 of all principals", managerQuota},
		{"operation", "202 with Azure-AsyncOperation and Location", operationHeaders},
	}
}

// managerQuota reads the headers of an answer to a write.
func managerQuota(ctx context.Context, w *world) (string, error) {
	a, err := w.do(ctx, http.MethodPut, ofDisk("quota")(w), w.spec(nil))
	most := func(header string, limit int) string {
		left, err := strconv.Atoi(a.header.Get("x-ms-ratelimit-remaining-subscription-" + header))
		switch {
		case err != nil:
			return "no header"
		case left <= limit:
			return fmt.Sprintf("at most %d", limit)
		}
		return fmt.Sprintf("%d left", left)
	}
	return most("writes", 200) + " writes, " + most("global-writes", 3000) + " of all principals", err
}

func operationHeaders(ctx context.Context, w *world) (string, error) {
	a, err := w.do(ctx, http.MethodPut, ofDisk("operation")(w), w.spec(nil))
	got := fmt.Sprint(a.status)
	for i, name := range []string{"Azure-AsyncOperation", "Location"} {
		if a.header.Get(name) != "" {
			got += []string{" with ", " and "}[i] + name
		}
	}
	return got, err
}

func diskPlays() []play {
	patch := func(rule, want, name string, properties object) play {
		return refusal(rule, want, http.MethodPatch, ofDisk(name),
			object{"properties": properties}).after(makeDisk(name, object{"diskSizeGB": 8}))
	}
	missing := func(w *world, kind string) string { return w.path(kind, "none") }
	put := func(rule, want string, body func(w *world) object) play {
		return play{rule, want, func(ctx context.Context, w *world) (string, error) {
			a, err := w.do(ctx, http.MethodPut, newDisk(w), body(w))
			return a.String(), err
		}}
	}
	return []play{
		refusal("disk-name", "400 InvalidParameter", http.MethodPut, ofDisk(strings.Repeat("a", 81)),
			object{"location": "eastus"}),
		refusal("disk-name", "400 InvalidParameter", http.MethodPut, ofDisk("_a"), object{"location": "eastus"}),
		badDisk("disk-sku", "400 InvalidParameter", object{"/sku": object{"name": "Golden_LRS"}}),
		badDisk("disk-zones", "400 InvalidAvailabilityZone", object{"/zones": []string{"9"}}),
		badDisk("disk-shares", "400 InvalidParameter", object{"maxShares": 4}),
		badDisk("disk-bursting", "400 InvalidParameter", object{"burstingEnabled": true}),
		badDisk("disk-tier", "400 InvalidParameter", object{"tier": "P7"}),
		badDisk("disk-performance", "400 InvalidParameter", object{"diskIOPSReadWrite": 5000}),
		badDisk("disk-network", "400 InvalidParameter", object{"networkAccessPolicy": "AllowPrivate"}),
		put("disk-encryption-set", "400 BadRequest", func(w *world) object {
			return w.spec(object{"encryption": object{
				"type":                "EncryptionAtRestWithCustomerKey",
				"diskEncryptionSetId": missing(w, "diskEncryptionSets"),
			}})
		}),
		put("disk-access", "400 BadRequest", func(w *world) object {
			return w.spec(object{"networkAccessPolicy": "AllowPrivate", "diskAccessId": missing(w, "diskAccesses")})
		}),
		put("copy-source", "404 NotFound", func(w *world) object {
			return w.spec(object{"creationData": object{"createOption": "Copy", "sourceResourceId": missing(w, "disks")}})
		}),
		{"retry-after-create", "2", func(ctx context.Context, w *world) (string, error) {
			a, err := w.do(ctx, http.MethodPut, ofDisk("retry")(w), w.spec(nil))
			return a.header.Get("Retry-After"), err
		}},
		{"disk-performance-shown", "120 IOPS, 25 MBps",
			shown("premium", nil, "%v IOPS, %v MBps", "diskIOPSReadWrite", "diskMBpsReadWrite")},
		{"disk-performance-shown", "500 IOPS, 60 MBps",
			shown("standard", object{"/sku": object{"name": "Standard_LRS"}}, "%v IOPS, %v MBps", "diskIOPSReadWrite",
				"diskMBpsReadWrite")},
		{"disk-tier-shown", "tier P1", shown("premium", nil, "tier %v", "tier")},
		{"disk-tier-shown", "tier <nil>", shown("standard", object{"/sku": object{"name": "Standard_LRS"}}, "tier %v", "tier")},
		patch("disk-shrink", "400 ResizeDiskError", "shrinks", object{"diskSizeGB": 4}),
		{"disk-zone-fixed", "400 BadRequest", changed("zonal", object{"/zones": []string{"1"}}, object{"/zones": []string{"2"}})},
		{"disk-location-fixed", "409 InvalidResourceLocation", changed("placed", nil, object{"/location": "japaneast"})},
		{"disk-source-fixed", "409 PropertyChangeNotAllowed", changed("sourced", nil, object{"creationData": object{
			"createOption":    "Upload",
			"uploadSizeBytes": 4<<30 + 512,
		}})},
	}
}

// shown reads properties of a disk.
func shown(name string, changes object, format string, properties ...string) func(context.Context, *world) (string, error) {
	return func(ctx context.Context, w *world) (string, error) {
		if err := makeDisk(name, changes)(ctx, w); err != nil {
			return "", err
		}
		a, err := w.send(ctx, http.MethodGet, ofDisk(name)(w), nil)
		have, _ := a.body["properties"].(object)
		values := make([]any, len(properties))
		for i, p := range properties {
			values[i] = have[p]
		}
		return fmt.Sprintf(format, values...), err
	}
}

// changed makes a disk, and sends another form of it.
func changed(name string, first, second object) func(context.Context, *world) (string, error) {
	return func(ctx context.Context, w *world) (string, error) {
		if err := makeDisk(name, first)(ctx, w); err != nil {
			return "", err
		}
		a, err := w.do(ctx, http.MethodPut, ofDisk(name)(w), w.spec(second))
		return a.String(), err
	}
}
