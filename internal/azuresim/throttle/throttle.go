// Package throttle is the request quota of Azure Compute: token buckets for each policy, one per
// resource and one per subscription, and the buckets of Azure Resource Manager in front of them.
// Buckets live in memory and are full after a restart.
package throttle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// Policy names.
const (
	PutVM           = "PutVM"
	UpdateVM        = "UpdateVM"
	DeleteVM        = "DeleteVM"
	LowCostGet      = "LowCostGet"
	HighCostGet     = "HighCostGet"
	GetOperation    = "GetOperation"
	UpdateVMSSVMs   = "UpdateVMScaleSetVMs"
	GetVMSSVMs      = "GetVMScaleSetVMs"
	LowCostGetVMSS  = "LowCostGetVMScaleSet"
	HighCostGetVMSS = "HighCostGetVMScaleSet"
)

// Policies of the disk provider, as they were recorded until 2023. Their windows hold for a
// subscription.
const (
	PutDisk     = "CreateUpdateDisks"
	DeleteDisk  = "DeleteDisks"
	PutSnapshot = "HighCostSnapshotCreateHydrate"
	GetDisk     = "LowCostGet of disks"
	ListDisks   = "HighCostGet of disks"
	PollDisk    = "GetOperation of disks"
	GetUsages   = "GetSubscriptionInfo"
	shortWindow = 3 * time.Minute
	longWindow  = 30 * time.Minute
)

// managerQuota is Resource Manager's quota per principal and subscription by kind of request. All
// principals of a subscription together have managerPrincipals times as much.
var managerQuota = map[string]Quota{
	"reads":   {PerMinute: 25 * 60, Capacity: 250},
	"writes":  {PerMinute: 10 * 60, Capacity: 200},
	"deletes": {PerMinute: 10 * 60, Capacity: 200},
}

const managerPrincipals = 15

// Quota is the size of a bucket and how fast it fills; a capacity of 0 means no limit. With a window
// the bucket fills at once when the window ends, and a window begins with the first call.
type Quota struct {
	PerMinute, Capacity int
	Window              time.Duration
}

// every is the time in which one token flows in.
func (q Quota) every() time.Duration { return time.Minute / time.Duration(q.PerMinute) }

// Policy is the quota of a group of calls. Windows are by the name in the header.
type Policy struct {
	Resource, Subscription Quota
	Windows                map[string]Quota
}

// windows are the quotas of a policy of the disk provider: for 3 minutes, and for 30.
func windows(name string, short, long int) Policy {
	p := Policy{Windows: map[string]Quota{name + "3Min": {Capacity: short, Window: shortWindow}}}
	if long > 0 {
		p.Windows[name+"30Min"] = Quota{Capacity: long, Window: longWindow}
	}
	return p
}

// Policies are Azure's published quotas of the compute resource provider.
var Policies = map[string]Policy{
	PutVM:           bucketed(4, 12, 500, 1500),
	UpdateVM:        bucketed(4, 12, 500, 1500),
	DeleteVM:        bucketed(4, 12, 500, 1500),
	LowCostGet:      bucketed(12, 36, 8000, 24000),
	HighCostGet:     bucketed(0, 0, 300, 900),
	GetOperation:    bucketed(15, 45, 5000, 15000),
	UpdateVMSSVMs:   bucketed(4, 12, 500, 1500),
	GetVMSSVMs:      bucketed(12, 36, 2000, 6000),
	LowCostGetVMSS:  bucketed(12, 36, 800, 2400),
	HighCostGetVMSS: bucketed(10, 30, 360, 1080),
	PutDisk:         windows("CreateUpdateDisks", 1000, 8000),
	DeleteDisk:      windows("DeleteDisks", 3000, 24000),
	PutSnapshot:     windows("HighCostSnapshotCreateHydrate", 240, 1920),
	GetDisk:         windows("LowCostGet", 15000, 120000),
	ListDisks:       windows("HighCostGet", 240, 1920),
	PollDisk:        windows("GetOperation", 50000, 400000),
	GetUsages:       windows("GetSubscriptionInfo", 420, 0),
}

// bucketed is a policy whose buckets fill all the time: that of a resource, and that of the
// subscription, each with how much flows in every minute, and its size.
func bucketed(perMinute, capacity, allPerMinute, allCapacity int) Policy {
	return Policy{
		Resource:     Quota{PerMinute: perMinute, Capacity: capacity},
		Subscription: Quota{PerMinute: allPerMinute, Capacity: allCapacity},
	}
}

// bucket is known by the time at which it is full again. Whole nanoseconds, and not fractions of
// tokens, are counted, so that after Retry-After there is a token and not almost one.
type bucket struct {
	full time.Time
	used int // in the window that ends when it is full again
}

// level returns how many tokens there are, and how long it takes until there is one.
func (b *bucket) level(q Quota, now time.Time) (tokens int, wait time.Duration) {
	if q.Window > 0 {
		switch {
		case !now.Before(b.full):
			return q.Capacity, 0
		case b.used < q.Capacity:
			return q.Capacity - b.used, 0
		}
		return 0, b.full.Sub(now)
	}
	missing := max(0, b.full.Sub(now))
	room := time.Duration(q.Capacity)*q.every() - missing
	return int(max(0, room) / q.every()), max(0, q.every()-room)
}

func (b *bucket) take(q Quota, now time.Time) {
	if q.Window > 0 {
		if !now.Before(b.full) {
			b.full, b.used = now.Add(q.Window), 0
		}
		b.used++
		return
	}
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(q.every())
}

// Limiter holds the buckets. It is safe for concurrent use.
type Limiter struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	buckets map[string]*bucket
}

// New returns a limiter with full buckets.
func New(c clock.PassiveClock) *Limiter { return &Limiter{clock: c, buckets: map[string]*bucket{}} }

// Reset fills every bucket.
func (l *Limiter) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buckets = map[string]*bucket{}
}

// Request is a call to be counted. Policy may be empty: then only Resource Manager's own limits
// hold.
type Request struct {
	Method, Subscription, Principal, Policy, Resource string
	// Foreign lets the answer name quotas that the call does not count against.
	Foreign bool
}

// foreign are the quotas that Azure names beside a request's own in answers to writes to scale sets
// and their instances. Nothing is left of the second, and no request is throttled.
var foreign = []string{"Microsoft.Compute/VMScaleSetBatchedVMRequests5Min;1199", "Microsoft.Compute/VmssQueuedVMOperations;0"}

// Outcome is the outcome: headers for the response, and the refusal if there is one.
type Outcome struct {
	Header  http.Header
	Refusal *armerror.Error
}

// limit is one bucket that a call takes a token from.
type limit struct {
	key    string
	name   string // in the header
	quota  Quota
	isARM  bool
	header string // of an ARM limit
}

// Take takes a token from every bucket that the call counts against, or from none if one of them is
// empty.
func (l *Limiter) Take(r Request) Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := r.limits()
	now := l.clock.Now()
	for _, li := range limits {
		if _, wait := l.bucket(li).level(li.quota, now); wait > 0 {
			if li.isARM {
				// Azure Compute does not see the call, and names none of its quotas.
				limits = slices.DeleteFunc(slices.Clone(limits), func(other limit) bool { return !other.isARM })
				r.Foreign = false
			}
			return Outcome{Header: l.headers(r, limits, now), Refusal: li.refusal(r, now, wait)}
		}
	}
	for _, li := range limits {
		l.bucket(li).take(li.quota, now)
	}
	return Outcome{Header: l.headers(r, limits, now)}
}

func (r Request) limits() []limit {
	sub := strings.ToLower(r.Subscription)
	kind := "reads"
	switch r.Method {
	case http.MethodPut, http.MethodPatch, http.MethodPost:
		kind = "writes"
	case http.MethodDelete:
		kind = "deletes"
	}
	own := managerQuota[kind]
	const header = "x-ms-ratelimit-remaining-subscription-"
	list := []limit{
		{
			key:    sub + "/arm/" + strings.ToLower(r.Principal) + "/" + kind,
			name:   kind,
			isARM:  true,
			header: header + kind,
			quota:  own,
		},
		{key: sub + "/all/" + kind, name: kind, isARM: true, header: header + "global-" + kind,
			quota: Quota{PerMinute: managerPrincipals * own.PerMinute, Capacity: managerPrincipals * own.Capacity}},
	}
	p, ok := Policies[r.Policy]
	if !ok {
		return list
	}
	if p.Resource.Capacity > 0 && r.Resource != "" {
		list = append(list, limit{
			key:   sub + "/" + r.Policy + "/" + strings.ToLower(r.Resource),
			name:  r.Policy + "Resource",
			quota: p.Resource,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(p.Windows)) {
		list = append(list, limit{
			key:   sub + "/" + r.Policy + "/" + name,
			name:  name,
			quota: p.Windows[name],
		})
	}
	if p.Subscription.Capacity == 0 {
		return list
	}
	return append(list, limit{
		key:   sub + "/" + r.Policy,
		name:  r.Policy + "SubscriptionMaximum",
		quota: p.Subscription,
	})
}

func (l *Limiter) bucket(li limit) *bucket {
	b, ok := l.buckets[li.key]
	if !ok {
		b = &bucket{}
		l.buckets[li.key] = b
	}
	return b
}

func (l *Limiter) headers(r Request, limits []limit, now time.Time) http.Header {
	h := http.Header{}
	var remaining []string
	for _, li := range limits {
		left, _ := l.bucket(li).level(li.quota, now)
		if li.isARM {
			h.Set(li.header, fmt.Sprint(left))
			continue
		}
		remaining = append(remaining, fmt.Sprintf("Microsoft.Compute/%s;%d", li.name, left))
	}
	if r.Foreign {
		remaining = append(remaining, foreign...)
	}
	if len(remaining) > 0 {
		h.Set("x-ms-ratelimit-remaining-resource", strings.Join(remaining, ","))
		h.Set("x-ms-request-charge", "1")
	}
	return h
}

func (li limit) refusal(r Request, now time.Time, wait time.Duration) *armerror.Error {
	seconds := max(1, int((wait+time.Second-1)/time.Second))
	var e *armerror.Error
	if li.isARM {
		e = armerror.New(http.StatusTooManyRequests, "SubscriptionRequestsThrottled",
			"Number of '%s' requests for subscription '%s' actor '%s' exceeded. Please try again after '%d' seconds after additional tokens are available.",
			strings.TrimSuffix(li.name, "s"), r.Subscription, r.Principal, seconds)
	} else {
		detail, _ := json.Marshal(map[string]any{
			"operationGroup": li.name, "startTime": now.Add(-cmp.Or(li.quota.Window, time.Minute)).UTC(), "endTime": now.UTC(),
			"allowedRequestCount": li.quota.Capacity, "measuredRequestCount": li.quota.Capacity + 1,
		})
		e = armerror.New(http.StatusTooManyRequests, "OperationNotAllowed",
			"The server rejected the request because too many requests have been received for this subscription.")
		e.Details = []armerror.Detail{{Code: "TooManyRequests", Target: li.name, Message: string(detail)}}
	}
	e.RetryAfter = time.Duration(seconds) * time.Second
	return e
}
