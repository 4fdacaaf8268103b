{{- define "gvDetails" -}}
{{- $gv := . -}}
{{ $gv.Doc }}

Fields are optional unless they are marked required. `charts/azuredisk/files/crds` has the limits of texts and lists.
{{ range $gv.SortedTypes }}
{{ template "type" . }}
{{- end }}
{{- end -}}
