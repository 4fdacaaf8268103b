#!/usr/bin/env bash
# Checks the alerts and recording rules with promtool, and runs their unit tests. Building promtool takes some minutes, once.
# Usage: hack/alerts-test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
promtool=$(hack/tool.sh promtool)
"$promtool" check rules --lint-fatal charts/azuredisk/files/rules.yaml
"$promtool" test rules test/alerts/rules_test.yaml
