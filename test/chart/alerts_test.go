package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var (
	metricInRule = regexp.MustCompile(`azuredisk_[a-z0-9_]+`)
	ofHistogram  = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// TestAlertsHaveRunbooksAndMetrics compares the rules with the list of metrics, which are served, and
// with the guide's sections.
func TestAlertsHaveRunbooksAndMetrics(t *testing.T) {
	t.Parallel()
	page := func(path string) string {
		text, err := os.ReadFile(filepath.Join(tree.Root(), path))
		expect.Must(t, err)
		return string(text)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Expr        string
				Annotations map[string]string
			}
		}
	}
	expect.Must(t, yaml.Unmarshal([]byte(page("charts/azuredisk/files/rules.yaml")), &rules))
	metrics := page("docs/reference/metrics.md")
	var alerts []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			for _, name := range metricInRule.FindAllString(r.Expr, -1) {
				if !strings.Contains(metrics, "`"+ofHistogram.ReplaceAllString(name, "")+"`") {
					t.Errorf("%s%s: the metric %s is not served", r.Alert, r.Expr, name)
				}
			}
			if r.Alert != "" {
				alerts = append(alerts, r.Alert)
			}
		}
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (AzureDisk\w+)$`).FindAllStringSubmatch(page("docs/guides/alerts.md"), -1) {
		sections = append(sections, m[1])
	}
	if len(alerts) == 0 || !slices.Equal(alerts, sections) {
		t.Errorf("the guide has the sections %q, want %q", sections, alerts)
	}
}

func TestThePrometheusRule(t *testing.T) {
	t.Parallel()
	rendered := objects(t, render(t, "--set", "metrics.rules.enabled=true,metrics.rules.labels.release=prom,"+
		"metrics.rules.alertLabels.team=storage,metrics.rules.runbookURL=https://wiki/"))
	rule := find(t, rendered, "PrometheusRule", release+"-rules")
	if rule.GetLabels()["release"] != "prom" {
		t.Errorf("got the labels %v", rule.GetLabels())
	}
	text := fmt.Sprint(rule.Object["spec"])
	for _, want := range []string{"alert:AzureDiskNodeLost", "for:15m", "severity:warning team:storage",
		"runbook_url:https://wiki/azuredisknodelost", "record:azuredisk:replicas:ratio", "{{ $value }} nodes are lost"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s\nwant a rule with %q", text, want)
		}
	}
}
