#!/usr/bin/env bash
# Checks the alerts, the recording rules and the dashboard's queries with promtool, and runs the unit tests of the rules. Building promtool takes some minutes, once.
# Usage: hack/alerts-test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
promtool=$(hack/tool.sh promtool)
"$promtool" check rules --lint-fatal charts/azuredisk/files/rules.yaml
"$promtool" test rules test/alerts/rules_test.yaml
# The queries as rules; of the rules that promtool checks, only the syntax concerns them.
queries=$(mktemp --suffix .json)
trap 'rm -f "$queries"' EXIT
{
  printf '{"groups":[{"name":"dashboard","rules":['
  grep -o '"expr": "\(\\.\|[^"\]\)*"' charts/azuredisk/files/dashboard.json | sed 's/\$__rate_interval/5m/g; s/\$[a-z]*/x/g' |
    awk '{ printf "%s{\"record\":\"query:%d\",%s}", (NR > 1 ? "," : ""), NR, $0 }'
  printf ']}]}'
} >"$queries"
"$promtool" check rules --lint=none "$queries"
