package chart_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/expect"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

var (
	metricInRule   = regexp.MustCompile(`azuredisk_[a-z0-9_]+`)
	ofHistogram    = regexp.MustCompile(`_(bucket|count|sum)$`)
	recordedSeries = regexp.MustCompile(`([a-z_]+):(azuredisk_[a-z0-9_]+):([a-z0-9_]+)`)
	byLabels       = regexp.MustCompile(`by \(([a-z_, ]+)\)`)
)

// replicaRatio is the share of the wanted replicas that are attached.
const replicaRatio = "cluster:azuredisk_replicas_attached_per_replicas_wanted:ratio"

// rule is one of charts/azuredisk/files/rules.yaml.
type rule struct{ Alert, Record, Expr string }

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	expect.Must(t, yaml.Unmarshal([]byte(textOf(t, "charts/azuredisk/files/rules.yaml")), &file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree.Root(), path))
	expect.Must(t, err)
	return string(text)
}

// unserved returns the metrics in a query that are not in the list of metrics, which
// test/docs.TestTheMetricsPageHasEveryMetric compares with the sources.
func unserved(t *testing.T, expr string) []string {
	t.Helper()
	list := textOf(t, "docs/reference/metrics.md")
	var missing []string
	for _, name := range metricInRule.FindAllString(recordedSeries.ReplaceAllString(expr, ""), -1) {
		if !strings.Contains(list, "`"+name+"`") && !strings.Contains(list, "`"+ofHistogram.ReplaceAllString(name, "")+"`") {
			missing = append(missing, name)
		}
	}
	return missing
}

// TestAlertsHaveRunbooksAndMetrics compares the rules with the list of metrics and with the guide's
// sections.
func TestAlertsHaveRunbooksAndMetrics(t *testing.T) {
	t.Parallel()
	var alerts []string
	for _, r := range rules(t) {
		if missing := unserved(t, r.Expr); missing != nil {
			t.Errorf("%s%s: the metrics %q are not served", r.Alert, r.Record, missing)
		}
		if r.Alert != "" {
			alerts = append(alerts, r.Alert)
		}
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (AzureDisk\w+)$`).FindAllStringSubmatch(textOf(t, "docs/guides/alerts.md"), -1) {
		sections = append(sections, m[1])
	}
	if len(alerts) == 0 || !slices.Equal(alerts, sections) {
		t.Errorf("the guide has the sections %q, want %q", sections, alerts)
	}
}

// TestRecordingRulesAreNamedByLevelMetricAndOperations: the level is the labels that are left, and the
// metric keeps its name, without _total. A ratio names both, with _per_ between them.
// https://prometheus.io/docs/practices/rules/
func TestRecordingRulesAreNamedByLevelMetricAndOperations(t *testing.T) {
	t.Parallel()
	recorded := 0
	for _, r := range rules(t) {
		if r.Record == "" {
			continue
		}
		recorded++
		parts := recordedSeries.FindStringSubmatch(r.Record)
		if parts == nil || parts[0] != r.Record {
			t.Errorf("got %s, want level:metric:operations", r.Record)
			continue
		}
		level := "cluster"
		if by := byLabels.FindStringSubmatch(r.Expr); by != nil {
			labels := slices.DeleteFunc(strings.Split(by[1], ", "), func(label string) bool { return label == "le" })
			level = cmp.Or(strings.Join(labels, "_"), level)
		}
		if parts[1] != level {
			t.Errorf("%s: got the level %s, want %s", r.Record, parts[1], level)
		}
		metric := parts[2]
		if strings.HasPrefix(parts[3], "ratio") {
			_, denominator, _ := strings.Cut(metric, "_per_")
			metric = "azuredisk_" + denominator
		}
		if len(unserved(t, metric)) > 0 && len(unserved(t, metric+"_total")) > 0 {
			t.Errorf("%s: got the metric %s, which is not served", r.Record, metric)
		}
	}
	if recorded == 0 {
		t.Error("got no recording rule")
	}
}

// TestTheDashboard: the ConfigMap has the dashboard, whose panels show only metrics that
// are served and series that the rules record. hack/alerts-test.sh checks the queries' syntax.
func TestTheDashboard(t *testing.T) {
	t.Parallel()
	rendered := find(t, objects(t, render(t, "--set", "metrics.dashboard.enabled=true,metrics.dashboard.annotations.grafana_folder=Disks")),
		"ConfigMap", release+"-dashboard")
	if got := rendered.GetLabels()["grafana_dashboard"] + rendered.GetAnnotations()["grafana_folder"]; got != "1Disks" {
		t.Errorf("got label and annotation %q, want 1Disks", got)
	}
	text, _, err := unstructured.NestedString(rendered.Object, "data", "azuredisk.json")
	expect.Must(t, err)
	if want := strings.TrimSpace(textOf(t, "charts/azuredisk/files/dashboard.json")); strings.TrimSpace(text) != want {
		t.Errorf("got %d bytes, want the file's %d", len(text), len(want))
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct {
				Expr       string
				Datasource struct{ UID string }
			}
		}
	}
	expect.Must(t, json.Unmarshal([]byte(text), &dashboard))
	recorded := map[string]bool{}
	for _, r := range rules(t) {
		recorded[r.Record] = true
	}
	ids, shown := map[int]bool{}, map[string]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: got the ID %d, want one of its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: got no query", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: got the data source %q, want the variable", p.Title, target.Datasource.UID)
			}
			if missing := unserved(t, target.Expr); missing != nil {
				t.Errorf("%s: the metrics %q are not served", p.Title, missing)
			}
			for _, series := range recordedSeries.FindAllString(target.Expr, -1) {
				shown[series] = true
				if !recorded[series] {
					t.Errorf("%s: no rule records %s", p.Title, series)
				}
			}
		}
	}
	for series := range recorded {
		// The ratio of the replicas hides how many there are.
		if series != "" && series != replicaRatio && !shown[series] {
			t.Errorf("no panel shows %s", series)
		}
	}
}

// TestTheQueriesOfTheReferenceAreTested: promtool runs each query that the page of metrics gives.
func TestTheQueriesOfTheReferenceAreTested(t *testing.T) {
	t.Parallel()
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	tests := words(textOf(t, "test/alerts/rules_test.yaml"))
	found := 0
	for _, m := range regexp.MustCompile("(?s)\n```promql\n(.+?)```").FindAllStringSubmatch(textOf(t, "docs/reference/metrics.md"), -1) {
		found++
		if !strings.Contains(tests, words(m[1])) {
			t.Errorf("got no test of the query\n%s", m[1])
		}
	}
	if found == 0 {
		t.Error("got no query on the page")
	}
}

func TestThePrometheusRule(t *testing.T) {
	t.Parallel()
	rendered := objects(t, render(t, "--set", "metrics.rules.enabled=true,metrics.rules.labels.release=prom,"+
		"metrics.rules.alertLabels.team=storage,metrics.rules.runbookURL=https://wiki.example.com/"))
	rule := find(t, rendered, "PrometheusRule", release+"-rules")
	if rule.GetLabels()["release"] != "prom" {
		t.Errorf("got the labels %v", rule.GetLabels())
	}
	text := fmt.Sprint(rule.Object["spec"])
	for _, want := range []string{"alert:AzureDiskNodeLost", "for:15m", "severity:warning team:storage",
		"runbook_url:https://wiki.example.com/azuredisknodelost", "record:" + replicaRatio, "{{ $value }} nodes are lost"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s\nwant a rule with %q", text, want)
		}
	}
	rule = find(t, objects(t, render(t, "--set", "metrics.rules.enabled=true")), "PrometheusRule", release+"-rules")
	const runbook = "runbook_url:https://set-homepage.invalid/azuredisk/blob/main/docs/guides/alerts.md#azuredisknodelost"
	if text := fmt.Sprint(rule.Object["spec"]); !strings.Contains(text, runbook) {
		t.Errorf("got %s\nwant, without a URL of the runbooks, a page below the chart's home: %q", text, runbook)
	}
}
