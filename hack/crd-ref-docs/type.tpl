{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type }}
## {{ $type.Name }}

{{ $type.Doc }}
{{ if $type.Members }}
| Field | Description |
| --- | --- |
{{ range $type.Members -}}
{{ if ne .Name "metadata" -}}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ markdownRenderFieldDoc .Doc }}{{ template "type_members" . }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{ if $type.EnumValues }}
| Value | Description |
| --- | --- |
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc }} |
{{ end -}}
{{ end -}}
{{- end -}}
{{- end -}}
