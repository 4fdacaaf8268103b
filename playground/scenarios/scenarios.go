// Package scenarios is the list of all scenarios; the packages below it hold them.
package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenarios/maintenance"
	"github.com/azuredisk-csi/azuredisk/playground/scenarios/nodeloss"
	"github.com/azuredisk-csi/azuredisk/playground/scenarios/outages"
	"github.com/azuredisk-csi/azuredisk/playground/scenarios/replicas"
)

// All are the scenarios, in the order in which they are listed.
var All = []scenario.Scenario{
	replicas.Hello,
	replicas.PlannedMove,
	replicas.GrowInUse,
	nodeloss.PowerCut,
	nodeloss.PowerCutLeader,
	nodeloss.PowerCutMany,
	nodeloss.PowerCutHelper,
	nodeloss.PowerCutStock,
	nodeloss.WhatIf,
	nodeloss.VMStopped,
	nodeloss.Partition,
	nodeloss.KubeletDead,
	nodeloss.Reboot,
	maintenance.Freeze,
	maintenance.FreezeLeader,
	maintenance.FreezePostgres,
	maintenance.SpotEviction,
	maintenance.KarpenterRemoval,
	maintenance.UnsyncedWrites,
	replicas.NodeDrain,
	maintenance.PoolUpgrade,
	maintenance.PoolUpgradeZRS,
	maintenance.PoolUpgradeTwoReplicas,
	outages.ControllerCrash,
	nodeloss.AzureBrownout,
	outages.APIServerOutage,
	outages.MassFalseAlarm,
	outages.ZoneDown,
	replicas.SlotPressure,
	replicas.FullNode,
	replicas.CleanUp,
	replicas.TwoClusters,
}

// List has a line for each scenario: its name and its summary.
func List() string {
	width := 0
	for _, s := range All {
		width = max(width, len(s.Name))
	}
	var b strings.Builder
	for _, s := range All {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, s.Name, s.Summary)
	}
	return b.String()
}

// Find returns the scenario of that name.
func Find(name string) (scenario.Scenario, error) {
	i := slices.IndexFunc(All, func(s scenario.Scenario) bool { return s.Name == name })
	if i >= 0 {
		return All[i], nil
	}
	var names []string
	for _, s := range All {
		names = append(names, s.Name)
	}
	return scenario.Scenario{}, fmt.Errorf("no scenario %q; there are %s", name, strings.Join(names, ", "))
}
