{{/*
Refuses a release that would share with another release of this chart what only one driver can have: the custom resources in a namespace, the leases in a
namespace, and the driver's name. It finds other releases by the label of the instance, and two releases of one name by Helm's annotation.
*/}}
{{- define "azuredisk.checkRelease" -}}
{{- $release := .Release -}}
{{- range $namespace := list .Values.driverNamespace .Release.Namespace | uniq -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "RoleBinding" $namespace "" | default dict).items -}}
{{- with include "azuredisk.otherRelease" (dict "release" $release "metadata" .metadata) -}}
{{- fail (printf "driverNamespace: the release %s uses the namespace %s already. Each release needs an driverNamespace and a release namespace of its own. See docs/guides/trial-on-aks.md" . $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $driver := .Values.driverName -}}
{{- range (lookup "storage.k8s.io/v1" "CSIDriver" "" "" | default dict).items -}}
{{- $other := include "azuredisk.otherRelease" (dict "release" $release "metadata" .metadata) -}}
{{- if and $other (eq .metadata.name $driver) -}}
{{- fail (printf "driverName: %s is the driver of the release %s. Each release needs a driverName of its own. See docs/guides/trial-on-aks.md" $driver $other) -}}
{{- end -}}
{{- if and (not $other) (eq (include "azuredisk.isDriver" .metadata) "true") (ne .metadata.name $driver) -}}
{{- fail (printf "driverName: is %s in this release, and cannot become %s, because PersistentVolumes and nodes have the name. Uninstall the release, and install it again. See docs/guides/trial-on-aks.md" .metadata.name $driver) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if an object is of this chart. Input: its metadata. */}}
{{- define "azuredisk.isDriver" -}}
{{- $labels := .labels | default dict -}}
{{- eq (index $labels "app.kubernetes.io/part-of" | default "") "azuredisk" -}}
{{- end -}}

{{/* The release of this chart that an object belongs to, if that is another one, otherwise empty. Input: dict release, metadata. */}}
{{- define "azuredisk.otherRelease" -}}
{{- if eq (include "azuredisk.isDriver" .metadata) "true" -}}
{{- $name := index .metadata.labels "app.kubernetes.io/instance" | default "" -}}
{{- $namespace := index (.metadata.annotations | default dict) "meta.helm.sh/release-namespace" | default .release.Namespace -}}
{{- if or (ne $name .release.Name) (ne $namespace .release.Namespace) -}}
{{- printf "%s in the namespace %s" $name $namespace -}}
{{- end -}}
{{- end -}}
{{- end -}}
