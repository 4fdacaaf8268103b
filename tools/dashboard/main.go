// The dashboard program prints the chart's Grafana dashboard, or with -rules its queries for promtool to check.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const (
	width  = 24
	height = 8
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		made, err := build()
		if err != nil {
			return err
		}
		return printJSON(made)
	case len(args) == 1 && args[0] == "-rules":
		return printJSON(rules())
	default:
		return errors.New("usage: dashboard [-rules]")
	}
}

func build() (dashboard.Dashboard, error) {
	b := dashboard.NewDashboardBuilder("Azure Disk CSI driver").
		Uid("azuredisk").
		Description("Moves, failovers, calls, and the volumes of a claim. The lower part needs the value node.diskMetrics.").
		Tags([]string{"azuredisk", "csi"}).
		Time("now-6h", "now").
		Refresh("1m").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(variable("namespace", "Namespace", `label_values(azuredisk_volume_info, claim_namespace)`)).
		WithVariable(variable("claim", "Claim",
			`label_values(azuredisk_volume_info{claim_namespace=~"$namespace"}, persistentvolumeclaim)`))
	id := uint32(0)
	next := func() uint32 { id++; return id }
	for _, r := range rows {
		b = b.WithRow(dashboard.NewRowBuilder(r.title).Id(next()))
		for _, p := range r.panels {
			b = b.WithPanel(p.builder(next(), uint32(width/len(r.panels))))
		}
	}
	made, err := b.Build()
	if err != nil {
		return made, err
	}
	return made, made.Validate()
}

// variable is a choice of any values of a label. All values include the empty one, of disks without
// a known claim.
func variable(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source()).
		Query(dashboard.StringOrMap{String: &query}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{
			Text:  dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func (p panel) builder(id, span uint32) cog.Builder[dashboard.Panel] {
	if p.table {
		b := table.NewPanelBuilder().Id(id).Title(p.title).Description(p.description).Datasource(source()).Span(span).Height(height).
			WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
				"excludeByName": map[string]bool{"Time": true, "Value": true},
			}})
		for i, q := range p.queries {
			b = b.WithTarget(q.builder(i).Instant().Format(prometheus.PromQueryFormatTable))
		}
		return b
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.description).Datasource(source()).Span(span).Height(height).
		Unit(p.unit).Min(0).NoValue("none").FillOpacity(8).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.unit == share {
		b = b.AxisSoftMax(1)
	}
	if p.logarithmic {
		b = b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(10))
	}
	for i, q := range p.queries {
		b = b.WithTarget(q.builder(i).Range())
	}
	return b
}

func (q query) builder(n int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source()).RefId(string(rune('A' + n))).Expr(q.expr).LegendFormat(q.legend)
}

// rules returns each query as a recording rule with the variables filled in, which promtool can
// check.
func rules() any {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var all []rule
	for _, r := range rows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				all = append(all, rule{Record: fmt.Sprintf("query:%d", len(all)), Expr: filledIn(q.expr)})
			}
		}
	}
	return map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": all}}}
}

func printJSON(value any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
