// The rules program writes the chart's recording rules and alerts as a template of Azure Resource
// Manager, for Azure's managed Prometheus, which has no PrometheusRule.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// group is a group of rules in Prometheus' format.
type group struct {
	Name     string `json:"name"`
	Interval string `json:"interval"`
	Rules    []struct {
		Alert       string            `json:"alert"`
		Record      string            `json:"record"`
		Expr        string            `json:"expr"`
		For         string            `json:"for"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"rules"`
}

// severities of Azure's alerts, from 0, critical, to 4.
var severities = map[string]int{"critical": 1, "warning": 2}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: rules CHART TEMPLATE.json")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

func write(chart, to string) error {
	var rules struct {
		Groups []group `json:"groups"`
	}
	if err := read(filepath.Join(chart, "files/rules.yaml"), yaml.UnmarshalStrict, &rules); err != nil {
		return err
	}
	var values struct {
		Metrics struct {
			Rules struct {
				RunbookURL string `json:"runbookURL"`
			} `json:"rules"`
		} `json:"metrics"`
	}
	if err := read(filepath.Join(chart, "values.yaml"), yaml.Unmarshal, &values); err != nil {
		return err
	}
	var resources []any
	for _, g := range rules.Groups {
		resource, err := resourceOf(g, values.Metrics.Rules.RunbookURL)
		if err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
		resources = append(resources, resource)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(template(resources)); err != nil {
		return err
	}
	return file.Close()
}

func read(path string, decode func([]byte, any, ...yaml.JSONOpt) error, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := decode(raw, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func template(resources []any) any {
	text := func(says string) any {
		return map[string]any{"type": "string", "metadata": map[string]string{"description": says}}
	}
	return map[string]any{
		"$schema":        "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
		"contentVersion": "1.0.0.0",
		"parameters": map[string]any{
			"workspaceID": text("Resource ID of the Azure Monitor workspace that has the metrics."),
			"clusterName": text("Name of the AKS cluster."),
			"location":    text("Region of the workspace."),
			"actionGroupIDs": map[string]any{
				"type": "array", "defaultValue": []string{},
				"metadata": map[string]string{"description": "Resource IDs of the action groups that are notified."},
			},
		},
		"variables": map[string]any{
			"copy": []any{map[string]any{
				"name": "actions", "count": "[length(parameters('actionGroupIDs'))]",
				"input": map[string]string{"actionGroupId": "[parameters('actionGroupIDs')[copyIndex('actions')]]"},
			}},
		},
		"resources": resources,
	}
}

// resourceOf is a group as a resource, by
// https://learn.microsoft.com/azure/templates/microsoft.alertsmanagement/prometheusrulegroups.
func resourceOf(g group, runbookURL string) (any, error) {
	var rules []any
	for _, r := range g.Rules {
		if r.Record != "" {
			rules = append(rules, map[string]any{"record": r.Record, "expression": r.Expr, "enabled": true})
			continue
		}
		severity, ok := severities[r.Labels["severity"]]
		if !ok {
			return nil, fmt.Errorf("alert %s has the severity %q, expected critical or warning", r.Alert, r.Labels["severity"])
		}
		annotations := map[string]string{"runbook_url": runbookURL + strings.ToLower(r.Alert)}
		for name, text := range r.Annotations {
			annotations[name] = text
		}
		rule := map[string]any{
			"alert": r.Alert, "expression": r.Expr, "severity": severity, "enabled": true,
			"labels": r.Labels, "annotations": annotations, "actions": "[variables('actions')]",
			"resolveConfiguration": map[string]any{"autoResolved": true, "timeToResolve": "PT5M"},
		}
		if r.For != "" {
			rule["for"] = duration(r.For)
		}
		rules = append(rules, rule)
	}
	interval := g.Interval
	if interval == "" {
		interval = "1m"
	}
	return map[string]any{
		"type":       "Microsoft.AlertsManagement/prometheusRuleGroups",
		"apiVersion": "2023-03-01",
		"name":       "[concat('" + g.Name + "-', parameters('clusterName'))]",
		"location":   "[parameters('location')]",
		"properties": map[string]any{
			"description": "Azure Disk CSI driver", "enabled": true, "interval": duration(interval),
			"clusterName": "[parameters('clusterName')]", "scopes": []string{"[parameters('workspaceID')]"}, "rules": rules,
		},
	}, nil
}

// duration is one of Prometheus, in minutes or hours, in ISO 8601.
func duration(text string) string { return "PT" + strings.ToUpper(text) }
