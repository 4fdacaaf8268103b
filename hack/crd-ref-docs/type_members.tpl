{{- define "type_members" -}}
{{- $field := . -}}
{{- range .Validation -}}
{{- if hasPrefix "Required:" . }} Required.{{ end -}}
{{- if or (hasPrefix "Minimum:" .) (hasPrefix "Maximum:" .) }} {{ . }}.{{ end -}}
{{- if and (hasPrefix "Enum:" .) (not $field.Type.EnumValues) }} {{ . }}.{{ end -}}
{{- end -}}
{{- with markdownRenderDefault .Default }} Default: {{ . }}.{{ end -}}
{{- end -}}
