{{/* Name of the service account of a component. Input: dict root, component. */}}
{{- define "azuredisk.account" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- if and (not $account.create) (not $account.name) -}}
{{- fail (printf "%s.serviceAccount.name: must name an existing ServiceAccount, because %s.serviceAccount.create is false" .component .component) -}}
{{- end -}}
{{- $account.name | default (printf "%s-%s" (include "azuredisk.fullname" .root) .component) -}}
{{- end -}}

{{/* The service account of a component, unless it exists already. Input: dict root, component, and annotations of the chart's own. */}}
{{- define "azuredisk.serviceAccount" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- $name := include "azuredisk.account" . -}}
{{- if $account.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "azuredisk.metadata" (dict "root" .root "component" .component "namespace" .root.Release.Namespace "name" $name) | nindent 2 }}
  {{- with merge (dict) (.annotations | default dict) $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Binds a role to a service account of the release's namespace. Input: dict root, component, name (of role and binding), account, namespace (none for a ClusterRole), and role where the role has another name. */}}
{{- define "azuredisk.binding" -}}
{{- $kind := ternary "Role" "ClusterRole" (not (not .namespace)) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- include "azuredisk.metadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind | default $kind }}, name: {{ .role | default .name | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ .root.Release.Namespace }}}
{{- end -}}
