package main

import "strings"

// row is a titled row of panels, which have the same width.
type row struct {
	title  string
	panels []panel
}

// panel is a chart of series over time, or a table of the present ones.
type panel struct {
	title, description, unit string
	table, logarithmic       bool
	queries                  []query
}

type query struct{ expr, legend string }

// Units, by Grafana's names.
const (
	seconds     = "s"
	number      = "short"
	share       = "percentunit"
	perSecond   = "reqps"
	bytesSecond = "Bps"
)

// ofClaim selects the series of the chosen claims.
const ofClaim = `{claim_namespace=~"$namespace", persistentvolumeclaim=~"$claim"}`

// claim is the legend of a series that has a claim.
const claim = "{{claim_namespace}}/{{persistentvolumeclaim}}"

// filledIn is a query as Grafana sends it.
func filledIn(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$claim", ".*").Replace(expr)
}

// withClaim gives a series with the label volume the labels of its claim, and leaves only the chosen
// claims.
func withClaim(expr string) string {
	return expr + ` * on (volume) group_left (claim_namespace, persistentvolumeclaim) topk by (volume) (1, azuredisk_volume_info` +
		ofClaim + `)`
}

func rateOf(counter string) string {
	return withClaim("sum by (volume) (rate(" + counter + "[$__rate_interval]))")
}

var rows = []row{
	{"Service levels", []panel{
		{
			title:       "Failover",
			description: "From a node's last sign of life until its volume is free, during the last hour.",
			unit:        seconds,
			queries: []query{
				{"azuredisk:failover_seconds:p50_1h", "median"},
				{"azuredisk:failover_seconds:p99_1h", "99 %"},
			},
		},
		{
			title:       "Moves onto nodes that had the disk",
			description: "Share of the moves during the last day. The others waited for an attach.",
			unit:        share,
			queries:     []query{{"azuredisk:warm_moves:ratio_1d", "warm"}},
		},
		{
			title:       "Publishes and stages",
			description: "99 % of the calls took at most this time, during the last 10 minutes. Without a replica, a stage waits for the attach.",
			unit:        seconds,
			queries: []query{
				{`azuredisk:csi_call_seconds:p99_10m{method=~"ControllerPublishVolume|NodeStageVolume"} >= 0`, "{{method}}"},
			},
		},
		{
			title:       "Moves",
			description: "Times that a node acquired a volume; warm: the disk was attached there already.",
			unit:        number,
			queries:     []query{{"sum by (warm) (increase(azuredisk_promotions_total[$__rate_interval]))", "warm: {{warm}}"}},
		},
	}},
	{"Nodes and replicas", []panel{
		{
			title:       "Lost nodes",
			description: "Nodes that are judged as lost. While the guard is 1, so many seem lost at once that none is fenced.",
			unit:        number,
			queries: []query{
				{"max(azuredisk_failover_nodes_lost)", "lost"},
				{"max(azuredisk_failover_guard_active)", "guard"},
			},
		},
		{
			title:       "Failovers",
			description: "Volumes that were taken from lost nodes, by how it ended, and pods that were not moved, by the reason.",
			unit:        number,
			queries: []query{
				{"sum by (result) (increase(azuredisk_failovers_total[$__rate_interval])) > 0", "{{result}}"},
				{"sum by (reason) (increase(azuredisk_failover_held_back_total[$__rate_interval])) > 0", "held back: {{reason}}"},
			},
		},
		{
			title:       "Replicas",
			description: "While fewer are attached than wanted, the next move of some volume waits for an attach.",
			unit:        number,
			queries: []query{
				{"sum(azuredisk_replicas_wanted)", "wanted"},
				{"sum(azuredisk_replicas_attached)", "attached"},
			},
		},
		{
			title:       "Pods not steered",
			description: "Pods with replicated volumes that were created without the webhook. There is nothing to see without the webhook.",
			unit:        number,
			queries: []query{
				{"sum(azuredisk_pods_not_steered) and on () count(azuredisk_scheduler_webhook_duration_seconds_count) > 0", "pods"},
			},
		},
	}},
	{"Azure", []panel{
		{
			title:       "Requests",
			description: "Requests to Azure, by the status of the answer. 429: throttled.",
			unit:        perSecond,
			queries: []query{
				{"sum by (status) (rate(azuredisk_azure_request_duration_seconds_count[$__rate_interval]))", "{{status}}"},
			},
		},
		{
			title:       "Duration of requests",
			description: "99 % of the requests took at most this time.",
			unit:        seconds,
			queries: []query{
				{"histogram_quantile(0.99, sum by (method, le) (rate(azuredisk_azure_request_duration_seconds_bucket[$__rate_interval]))) >= 0",
					"{{method}}"},
			},
		},
		{
			title:       "Remaining quota",
			description: "As Azure said last, by its throttling policy.",
			unit:        number,
			logarithmic: true,
			queries:     []query{{"min by (policy) (azuredisk_azure_quota_remaining)", "{{policy}}"}},
		},
		{
			title:       "Held back",
			description: "Seconds in each second for which requests were held back to stay within a quota.",
			unit:        seconds,
			queries:     []query{{"sum by (policy) (rate(azuredisk_azure_paced_seconds_sum[$__rate_interval]))", "{{policy}}"}},
		},
	}},
	{"CSI calls", []panel{
		{
			title:       "Calls",
			description: "Calls of the controller and of the node plug-ins.",
			unit:        perSecond,
			queries: []query{
				{"sum by (method) (rate(azuredisk_csi_call_duration_seconds_count[$__rate_interval])) > 0", "{{method}}"},
			},
		},
		{
			title:       "Errors",
			description: "Calls that failed, by their gRPC code. A few of Aborted and FailedPrecondition are part of a move.",
			unit:        perSecond,
			queries: []query{
				{`sum by (method, code) (rate(azuredisk_csi_call_duration_seconds_count{code!="OK"}[$__rate_interval])) > 0`,
					"{{method}} {{code}}"},
			},
		},
		{
			title:       "Duration of calls",
			description: "99 % of the calls took at most this time, during the last 10 minutes.",
			unit:        seconds,
			queries:     []query{{"azuredisk:csi_call_seconds:p99_10m >= 0", "{{method}}"}},
		},
	}},
	{"Volumes of $namespace/$claim: where they are", []panel{
		{
			title:       "Volumes in use",
			description: "The node, the disk and the device of each volume.",
			table:       true,
			queries: []query{
				{"max by (claim_namespace, persistentvolumeclaim, persistentvolume, volume, disk, node, device) (azuredisk_volume_info" +
					ofClaim + ")", ""},
			},
		},
	}},
	{"Volumes of $namespace/$claim: which limit throttles them", []panel{
		{
			title:       "Share of the disk's limits",
			description: "Near 1, Azure delays the requests to the disk.",
			unit:        share,
			queries: []query{
				{"azuredisk:volume_iops:share_5m" + ofClaim, claim + " IOPS"},
				{"azuredisk:volume_throughput:share_5m" + ofClaim, claim + " throughput"},
			},
		},
		{
			title:       "Share of the VM's limits",
			description: "The limits of the VM are for all its disks together.",
			unit:        share,
			queries: []query{
				{"azuredisk:volume_vm_iops:share_5m" + ofClaim, claim + " {{node}} IOPS"},
				{"azuredisk:volume_vm_throughput:share_5m" + ofClaim, claim + " {{node}} throughput"},
			},
		},
		{
			title:       "Duration of requests",
			description: "Mean duration, as the node sees it.",
			unit:        seconds,
			queries: []query{
				{"azuredisk:volume_read_seconds:mean_5m" + ofClaim, claim + " read"},
				{"azuredisk:volume_write_seconds:mean_5m" + ofClaim, claim + " write"},
			},
		},
	}},
	{"Volumes of $namespace/$claim: what they do", []panel{
		{
			title:       "IOPS",
			description: "Requests to the device.",
			unit:        "iops",
			queries: []query{
				{rateOf("azuredisk_volume_reads_total"), claim + " read"},
				{rateOf("azuredisk_volume_writes_total"), claim + " write"},
			},
		},
		{
			title:       "Throughput",
			description: "Bytes that are read from the device and written to it.",
			unit:        bytesSecond,
			queries: []query{
				{rateOf("azuredisk_volume_read_bytes_total"), claim + " read"},
				{rateOf("azuredisk_volume_written_bytes_total"), claim + " write"},
			},
		},
		{
			title:       "Busy",
			description: "Share of the time for which a request was in flight.",
			unit:        share,
			queries:     []query{{rateOf("azuredisk_volume_busy_seconds_total"), claim}},
		},
	}},
}
