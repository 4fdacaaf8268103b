{{- define "gvList" -}}
# Custom resources

This page is generated from the comments of `api/v1`.
{{ range . }}
{{ template "gvDetails" . }}
{{ end }}
{{- end -}}
