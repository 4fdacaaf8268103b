{{/*
The DaemonSets of the node plug-in as a list of dicts component, pool, values: one for the nodes of no pool, and one for each pool.
Virtual nodes have no disks. A node runs one node plug-in: the DaemonSet of the first pool, by name, whose label the node has.
*/}}
{{- define "azuredisk.nodeComponents" -}}
{{- $excluded := list (dict "key" "type" "operator" "NotIn" "values" (list "virtual-kubelet")) -}}
{{- $components := list -}}
{{- range $name, $pool := .Values.node.pools -}}
{{- if $pool -}}
{{- $values := mergeOverwrite (deepCopy (omit $.Values.node "pools")) (deepCopy $pool) -}}
{{- $_ := set $values "affinity" (include "azuredisk.affinityWithout" (dict "affinity" $values.affinity "excluded" $excluded) | fromYaml) -}}
{{- $components = append $components (dict "component" (printf "node-%s" $name) "pool" $name "values" $values) -}}
{{- range $key, $value := $pool.nodeSelector -}}
{{- $excluded = append $excluded (dict "key" $key "operator" "NotIn" "values" (list $value)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $values := deepCopy (omit .Values.node "pools") -}}
{{- $_ := set $values "affinity" (include "azuredisk.affinityWithout" (dict "affinity" $values.affinity "excluded" $excluded) | fromYaml) -}}
{{- prepend $components (dict "component" "node" "pool" "" "values" $values) | toYaml -}}
{{- end -}}

{{/* An affinity that also excludes nodes. Kubernetes joins the terms of required node affinity by "or", so each gets the expressions. Input: dict affinity, excluded. */}}
{{- define "azuredisk.affinityWithout" -}}
{{- $excluded := .excluded -}}
{{- $nodeAffinity := (.affinity | default dict).nodeAffinity | default dict -}}
{{- $required := $nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range $required.nodeSelectorTerms | default (list dict) -}}
{{- $terms = append $terms (merge (dict "matchExpressions" (concat (.matchExpressions | default list) $excluded)) (omit . "matchExpressions")) -}}
{{- end -}}
{{- $nodeAffinity = merge (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) (omit $nodeAffinity "requiredDuringSchedulingIgnoredDuringExecution") -}}
{{- merge (dict "nodeAffinity" $nodeAffinity) (omit (.affinity | default dict) "nodeAffinity") | toYaml -}}
{{- end -}}
