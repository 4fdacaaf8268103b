{{/* An address that a program listens on. Input: dict port, loopback. */}}
{{- define "azuredisk.listen" -}}
{{ ternary "127.0.0.1" "" (not (not .loopback)) }}:{{ .port }}
{{- end -}}

{{/* "true" if metrics are served to the network over HTTPS, otherwise empty. */}}
{{- define "azuredisk.secureMetrics" -}}
{{- if and (eq .Values.metrics.listen "network") .Values.metrics.secure }}true{{ end -}}
{{- end -}}

{{/* Relabelings of an endpoint of a ServiceMonitor. Input: the value metrics.serviceMonitor. */}}
{{- define "azuredisk.relabelings" -}}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Settings of a pod that a user adds. Input: dict values, and dnsPolicy of the chart's own. */}}
{{- define "azuredisk.podExtras" -}}
{{- $dnsPolicy := .values.dnsPolicy | default .dnsPolicy -}}
{{- with $dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* envFrom of a component's container. Input: values. */}}
{{- define "azuredisk.envFrom" -}}
{{- with .envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Mounts of a component's container for the certificate of the metrics, and those that a user adds. A node gets no key. Input: dict root, component, values. */}}
{{- define "azuredisk.extraMounts" -}}
{{- if and .values.metricsPort (include "azuredisk.secureMetrics" .root) .root.Values.metrics.tlsSecretName (not (hasPrefix "node" .component)) }}
- {name: metrics-tls, mountPath: /etc/azuredisk/metrics, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volumes of these mounts. Input: dict root, values. */}}
{{- define "azuredisk.extraVolumes" -}}
{{- if and .values.metricsPort (include "azuredisk.secureMetrics" .root) .root.Values.metrics.tlsSecretName (not (hasPrefix "node" .component)) }}
- name: metrics-tls
  secret:
    secretName: {{ .root.Values.metrics.tlsSecretName }}
    defaultMode: 0440
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
