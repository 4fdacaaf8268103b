// The rules program writes the recording rules and alerts that the chart renders as a template of
// Azure Resource Manager, for Azure's managed Prometheus, which has no PrometheusRule.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
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
	groups, err := render(chart)
	if err != nil {
		return err
	}
	var resources []any
	for _, g := range groups {
		resource, err := resourceOf(g)
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

// render returns the groups of the chart's PrometheusRule.
func render(chart string) ([]group, error) {
	helm, err := programs.Find("helm")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(helm, "template", "azuredisk", chart, "--kube-version", "1.34.0", "--show-only", "templates/metrics.yaml",
		"--set", "csiDriver.attachRequired=false,metrics.rules.enabled=true")
	var problem bytes.Buffer
	cmd.Stderr = &problem
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("render the rules: %w: %s", err, problem.String())
	}
	var rule struct {
		Kind string `json:"kind"`
		Spec struct {
			Groups []group `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(output, &rule); err != nil {
		return nil, fmt.Errorf("read what the chart renders: %w", err)
	}
	if rule.Kind != "PrometheusRule" {
		return nil, fmt.Errorf("read what the chart renders: got the kind %q, want PrometheusRule", rule.Kind)
	}
	return rule.Spec.Groups, nil
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
func resourceOf(g group) (any, error) {
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
		rule := map[string]any{
			"alert": r.Alert, "expression": r.Expr, "severity": severity, "enabled": true,
			"labels": r.Labels, "annotations": r.Annotations, "actions": "[variables('actions')]",
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
