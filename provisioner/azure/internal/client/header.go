package client

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/pacing"
)

// remainingOf reads x-ms-ratelimit-remaining-resource, as in
// "Microsoft.Compute/UpdateVM;11,Microsoft.Compute/UpdateVMSubscription;1499".
func remainingOf(h http.Header) []pacing.Remaining {
	var all []pacing.Remaining
	for _, line := range h.Values("x-ms-ratelimit-remaining-resource") {
		for _, part := range strings.Split(line, ",") {
			name, value, ok := strings.Cut(strings.TrimSpace(part), ";")
			left, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if ok && err == nil {
				all = append(all, pacing.Remaining{Policy: strings.TrimSpace(name), Left: left})
			}
		}
	}
	return all
}

// managerRemaining reads the remaining quotas of Resource Manager, for this principal and for all,
// as in "x-ms-ratelimit-remaining-subscription-reads: 249".
func managerRemaining(h http.Header) []pacing.Remaining {
	const prefix = "X-Ms-Ratelimit-Remaining-Subscription-"
	var all []pacing.Remaining
	for name, values := range h {
		kind, ok := strings.CutPrefix(name, prefix)
		if left, err := strconv.ParseFloat(values[0], 64); ok && err == nil {
			all = append(all, pacing.Remaining{Policy: "Subscription" + strings.ReplaceAll(kind, "-", ""), Left: left})
		}
	}
	return all
}

// longestSilence is the longest pause that is taken from an answer: the length of Azure's longest
// window. An answer that asks for more is wrong, and must not stop the driver permanently.
const longestSilence = time.Hour

// retryAfter reads how long an answer asks to wait; 0 if it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"retry-after-ms", time.Millisecond}, {"x-ms-retry-after-ms", time.Millisecond}, {"Retry-After", time.Second}} {
		value := h.Get(header.name)
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return time.Duration(min(n, int(longestSilence/header.unit))) * header.unit
		}
		if at, err := http.ParseTime(value); err == nil && at.After(now) {
			return min(at.Sub(now), longestSilence)
		}
	}
	return 0
}
