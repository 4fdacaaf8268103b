{{- define "azuredisk.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of every object. Pods do not have the version, so an upgrade changes only what it must. */}}
{{- define "azuredisk.labels" -}}
app.kubernetes.io/name: azuredisk
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: azuredisk
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels by which pods are selected. Input: dict root, component. */}}
{{- define "azuredisk.selector" -}}
app.kubernetes.io/name: azuredisk
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Metadata of an object that belongs to a component. Input: dict root, component, namespace and annotations if the object has any, and name where it is not fullname-component. */}}
{{- define "azuredisk.metadata" -}}
name: {{ .name | default (printf "%s-%s" (include "azuredisk.fullname" .root) .component) }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "azuredisk.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/*
The image of a container. Input: dict root, image, and tag where the image names none. A digest is more exact than a tag, so the tag is left out.
The first part of a repository is a registry if it has a dot or a port; global.imageRegistry takes its place.
*/}}
{{- define "azuredisk.imageOf" -}}
{{- $repository := .image.repository -}}
{{- with (.root.Values.global | default dict).imageRegistry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if .image.digest -}}
image: {{ printf "%s@%s" $repository .image.digest | quote }}
{{- else -}}
image: {{ printf "%s:%s" $repository (.image.tag | default .tag) | quote }}
{{- end }}
imagePullPolicy: {{ .image.pullPolicy }}
{{- end -}}

{{- define "azuredisk.image" -}}
{{- include "azuredisk.imageOf" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{/* Environment of each of our programs. Input: root. */}}
{{- define "azuredisk.commonEnv" -}}
{{- if .Values.fips }}
- name: GODEBUG
  value: fips140=on
{{- end }}
{{- end -}}

{{/* Flags that every subcommand has. Input: dict root, values (of the component), metricsAddress. */}}
{{- define "azuredisk.commonArgs" -}}
- --driver-namespace={{ .root.Values.driverNamespace }}
- --driver-name={{ .root.Values.driverName }}
- --log-level={{ ternary "debug" (.values.logLevel | default .root.Values.logLevel) .root.Values.debugLogs }}
- --log-format={{ .root.Values.logFormat }}
{{- if .values.metricsPort }}
- --metrics-address={{ include "azuredisk.listen" (dict "port" .values.metricsPort "loopback" (eq .root.Values.metrics.listen "loopback")) }}
{{- if include "azuredisk.secureMetrics" .root }}
- --metrics-secure
{{- if and .root.Values.metrics.tlsSecretName (not (hasPrefix "node" .component)) }}
- --metrics-cert-dir=/etc/azuredisk/metrics
{{- end }}
{{- end }}
{{- else }}
- --metrics-address=0
{{- end }}
{{- end -}}

{{/* Where the pods of a component may run. Input: dict root, component, values. The start-up taint waits for the node plug-in. The other components must not wait for it. */}}
{{- define "azuredisk.placement" -}}
priorityClassName: {{ .values.priorityClassName | quote }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := .values.tolerations }}
{{- if not (hasPrefix "node" .component) }}
{{- $tolerations = append ($tolerations | default list) (dict "key" (printf "%s/agent-not-ready" .root.Values.driverName) "operator" "Exists") }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .values.affinity }}
affinity:
  {{- toYaml .values.affinity | nindent 2 }}
{{- else if has .component (list "controller" "scheduler") }}
affinity:
  nodeAffinity:
    # Root on the node has the credentials of these pods. AKS gives the nodes of users' pools this label.
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: kubernetes.azure.com/mode, operator: NotIn, values: [user]}
    # No kubelet can give its own node a label with this prefix.
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 10
        preference:
          matchExpressions:
            - {key: node-restriction.kubernetes.io/azuredisk, operator: In, values: [controller]}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "azuredisk.selector" . | nindent 14 }}
          # The pods that an upgrade replaces do not count: two new ones would else come to one zone.
          matchLabelKeys: [pod-template-hash]
      - weight: 100
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels:
              {{- include "azuredisk.selector" . | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Metadata of the pods of a component. Input: dict root, component, values, and annotations and labels of the chart's own. */}}
{{- define "azuredisk.podMetadata" -}}
labels:
  {{- include "azuredisk.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: azuredisk
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := merge (dict) .values.podAnnotations (.annotations | default dict) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The names of the Secrets for pulling images, as a JSON array: those of this chart and of its parent, which may name a Secret by a string. Input: root. */}}
{{- define "azuredisk.imagePullSecretNames" -}}
{{- $names := list -}}
{{- range concat .Values.imagePullSecrets ((.Values.global | default dict).imagePullSecrets | default list) -}}
{{- $names = append $names (kindIs "string" . | ternary . (dig "name" "" (kindIs "string" . | ternary dict .))) -}}
{{- end -}}
{{- $names | uniq | toJson -}}
{{- end -}}

{{/* What the pods have in common. A Service named azuredisk… would give them variables that begin as those of their settings do. */}}
{{- define "azuredisk.podSpec" -}}
enableServiceLinks: false
{{- with include "azuredisk.imagePullSecretNames" . | fromJsonArray }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Security context of a container that needs no rights at all. Input: values, whose containerSecurityContext is preferred. */}}
{{- define "azuredisk.unprivileged" -}}
securityContext:
  {{- mergeOverwrite (dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL"))) (deepCopy (.containerSecurityContext | default dict)) | toYaml | nindent 2 }}
{{- end -}}

{{/* Security context of a pod that is not root. Input: values, whose podSecurityContext is preferred. */}}
{{- define "azuredisk.nonRoot" -}}
{{- mergeOverwrite (dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault")) (deepCopy (.podSecurityContext | default dict)) | toYaml -}}
{{- end -}}

{{/* Probes of one of our programs. Input: port (name), scheme, and loopback if the program listens there only. */}}
{{- define "azuredisk.probes" -}}
{{- $to := printf "port: %s, scheme: %s" .port (.scheme | default "HTTP") -}}
{{- if .loopback }}{{ $to = printf "host: 127.0.0.1, %s" $to }}{{ end -}}
startupProbe:
  httpGet: {path: /healthz, {{ $to }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, {{ $to }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, {{ $to }}}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end -}}

{{/* Where azure.json is: inline, host, environment, api (a Secret of another namespace) or secret (one of this namespace). */}}
{{- define "azuredisk.cloudFrom" -}}
{{- if .Values.cloud.inline -}}
inline
{{- else if .Values.cloud.hostPath -}}
host
{{- else if .Values.cloud.environmentOnly -}}
environment
{{- else if and .Values.cloud.secretNamespace (ne .Values.cloud.secretNamespace .Release.Namespace) -}}
api
{{- else -}}
secret
{{- end -}}
{{- end -}}

{{/* Name of the mounted Secret with azure.json. Empty if there is none. */}}
{{- define "azuredisk.cloudSecret" -}}
{{- $from := include "azuredisk.cloudFrom" . -}}
{{- if eq $from "inline" -}}
{{ include "azuredisk.fullname" . }}-cloud
{{- else if eq $from "secret" -}}
{{ .Values.cloud.secretName }}
{{- end -}}
{{- end -}}

{{/* Path of azure.json in the controller. A file of the host has the host's path, so paths in it are correct. Empty if there is none. */}}
{{- define "azuredisk.cloudFile" -}}
{{- $from := include "azuredisk.cloudFrom" . -}}
{{- if eq $from "inline" -}}
/etc/azuredisk/cloud/azure.json
{{- else if eq $from "host" -}}
{{ .Values.cloud.hostPath }}
{{- else if eq $from "secret" -}}
/etc/azuredisk/cloud/{{ .Values.cloud.secretKey }}
{{- end -}}
{{- end -}}

{{/* Flags of the controller for Azure's endpoints and credentials. */}}
{{- define "azuredisk.cloudArgs" -}}
{{- $cloud := .Values.cloud -}}
- --cloud-config={{ include "azuredisk.cloudFile" . }}
{{- if eq (include "azuredisk.cloudFrom" .) "api" }}
- --cloud-config-secret-name={{ $cloud.secretName }}
- --cloud-config-secret-namespace={{ $cloud.secretNamespace }}
- --cloud-config-secret-key={{ $cloud.secretKey }}
{{- end }}
- --cloud-config-reload-interval={{ $cloud.reloadInterval }}
{{- if $cloud.caConfigMap }}
- --cloud-ca-file=/etc/azuredisk/ca/ca.crt
{{- end }}
{{- with $cloud.subscriptionID }}
- --subscription-id={{ . }}
{{- end }}
{{- with $cloud.resourceGroup }}
- --resource-group={{ . }}
{{- end }}
{{- with $cloud.location }}
- {{ printf "--location=%s" . | quote }}
{{- end }}
{{- with $cloud.customUserAgent }}
- {{ printf "--custom-user-agent=%s" . | quote }}
{{- end }}
{{- with $cloud.userAgentSuffix }}
- {{ printf "--user-agent-suffix=%s" . | quote }}
{{- end }}
{{- end -}}

{{/* Environment of the controller: its pod, for events, the identity if there is no azure.json, and the proxy. */}}
{{- define "azuredisk.cloudEnv" -}}
{{- $cloud := .Values.cloud -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- if $cloud.environmentOnly }}
{{- with $cloud.environment }}
- name: AZURE_ENVIRONMENT
  value: {{ . }}
{{- end }}
{{- with $cloud.managedIdentity.clientID }}
- name: AZURE_CLIENT_ID
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $cloud.proxy.httpProxy }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with $cloud.proxy.httpsProxy }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
{{- if or $cloud.proxy.httpProxy $cloud.proxy.httpsProxy }}
- name: NO_PROXY
  value: {{ list $cloud.proxy.noProxy "$(KUBERNETES_SERVICE_HOST)" ".svc" "localhost" "127.0.0.1" "169.254.169.254" "168.63.129.16" | compact | join "," | quote }}
{{- end }}
{{- end -}}

{{/* The effective scheduler.mode. `auto` is `extender` if the extender has an address for kube-scheduler, and otherwise `webhook`. */}}
{{- define "azuredisk.schedulerMode" -}}
{{- $scheduler := .Values.scheduler -}}
{{- if ne $scheduler.mode "auto" -}}
{{- $scheduler.mode -}}
{{- else if or $scheduler.service.clusterIP $scheduler.service.nodePort $scheduler.hostNetwork $scheduler.tls.secretName -}}
extender
{{- else -}}
webhook
{{- end -}}
{{- end -}}

{{/* Name of the Secret with the certificate of the extender and the webhook. Empty if there is none, or if the webhook makes its own. */}}
{{- define "azuredisk.schedulerTLSSecret" -}}
{{- $mode := include "azuredisk.schedulerMode" . -}}
{{- if has $mode (list "extender" "webhook") -}}
{{- if .Values.scheduler.tls.secretName -}}
{{- .Values.scheduler.tls.secretName -}}
{{- else if and (eq $mode "webhook") .Values.scheduler.webhook.certManager.enabled -}}
{{- include "azuredisk.fullname" . }}-scheduler-tls
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The stanza of a KubeSchedulerConfiguration that calls the extender. Input: dict root, address. */}}
{{- define "azuredisk.extenderStanza" -}}
{{- $tls := include "azuredisk.schedulerTLSSecret" .root -}}
# Without this, kube-scheduler rates only some of the nodes of a cluster of 100 or more, and may miss the replica.
percentageOfNodesToScore: 100
extenders:
  - urlPrefix: {{ ternary "https" "http" (not (not $tls)) }}://{{ .address }}
    filterVerb: filter
    prioritizeVerb: prioritize
    weight: {{ .root.Values.scheduler.weight }}
    nodeCacheCapable: true
    ignorable: true
    httpTimeout: 2s
    {{- if $tls }}
    enableHTTPS: true
    tlsConfig:
      caFile: /etc/kubernetes/azuredisk-extender-ca.crt
      serverName: {{ include "azuredisk.fullname" .root }}-scheduler.{{ .root.Release.Namespace }}.svc
    {{- end }}
{{- end -}}

{{/* "true" if snapshots are served, otherwise empty. */}}
{{- define "azuredisk.snapshots" -}}
{{- if kindIs "bool" .Values.snapshot.enabled -}}
{{- if .Values.snapshot.enabled }}true{{ end -}}
{{- else if .Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1" -}}
true
{{- end -}}
{{- end -}}

{{/* The existing CSIDriver, as YAML. Empty if there is none, and if the chart is rendered without a cluster. */}}
{{- define "azuredisk.csiDriverThere" -}}
{{- (lookup "storage.k8s.io/v1" "CSIDriver" "" .Values.driverName | default dict).spec | default dict | toYaml -}}
{{- end -}}

{{/*
Name and node of a VolumeAttachment of the driver that csi-attacher has served, as text. Empty if there is none. Kubernetes makes others where the CSIDriver is
missing, and removes them itself.
*/}}
{{- define "azuredisk.volumeAttachmentThere" -}}
{{- $driver := .Values.driverName -}}
{{- range (lookup "storage.k8s.io/v1" "VolumeAttachment" "" "" | default dict).items -}}
{{- if and (eq .spec.attacher $driver) (or .metadata.finalizers (dig "attached" false (.status | default dict))) -}}
{{- printf "%s of %s to node %s" .metadata.name $driver .spec.nodeName -}}
{{- break -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The attachRequired with which the release runs, "true" or "false", by the argument of its controller. Empty if it is not installed. */}}
{{- define "azuredisk.attachRequiredBefore" -}}
{{- $controller := lookup "apps/v1" "Deployment" .Release.Namespace (printf "%s-controller" (include "azuredisk.fullname" .)) | default dict -}}
{{- range dig "spec" "template" "spec" "containers" list $controller -}}
{{- range .args -}}
{{- if hasPrefix "--attach-required=" . -}}
{{- trimPrefix "--attach-required=" . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The effective csiDriver.attachRequired. If the value is not a boolean, it is the one with which the release runs: if the CSIDriver was deleted, the mode does not change
under pods that run. In a new release it is the value of the existing CSIDriver, because Kubernetes does not allow a change of it. Without a CSIDriver it is true if a
VolumeAttachment of the driver is attached, or if the chart does not create the CSIDriver (Kubernetes' default is true), and otherwise false. Where there is no
cluster to ask, rendering fails: what is rendered does not depend on the tool.
*/}}
{{- define "azuredisk.attachRequired" -}}
{{- $there := include "azuredisk.csiDriverThere" . | fromYaml -}}
{{- $before := include "azuredisk.attachRequiredBefore" . -}}
{{- if kindIs "bool" .Values.csiDriver.attachRequired -}}
{{- .Values.csiDriver.attachRequired -}}
{{- else if $before -}}
{{- $before -}}
{{- else if hasKey $there "attachRequired" -}}
{{- $there.attachRequired -}}
{{- else if not (lookup "storage.k8s.io/v1" "CSIDriver" "" "") -}}
{{- fail (printf "csiDriver.attachRequired: auto, and there is no cluster to ask, because the manifests are only rendered. Set true if the CSIDriver %s of the cluster has true, and false if it has false or there is none. See docs/guides/without-volumeattachments.md" .Values.driverName) -}}
{{- else -}}
{{- or (not .Values.csiDriver.create) (ne (include "azuredisk.volumeAttachmentThere" .) "") -}}
{{- end -}}
{{- end -}}

{{/* Refuses a change of attachRequired in an existing CSIDriver, which Kubernetes does not allow, and a mode in which no component would remove the remaining VolumeAttachments. */}}
{{- define "azuredisk.checkAttachRequired" -}}
{{- $wanted := eq (include "azuredisk.attachRequired" .) "true" -}}
{{- $there := include "azuredisk.csiDriverThere" . | fromYaml -}}
{{- if and (hasKey $there "attachRequired") (ne $there.attachRequired $wanted) -}}
{{- fail (printf "csiDriver.attachRequired: %v, and the CSIDriver %s that is there has %v, which Kubernetes does not allow to change. See docs/guides/without-volumeattachments.md" $wanted .Values.driverName $there.attachRequired) -}}
{{- end -}}
{{- if not $wanted -}}
{{- with include "azuredisk.volumeAttachmentThere" . -}}
{{- fail (printf "csiDriver.attachRequired: false, and the VolumeAttachment %s is there, and no component would remove it. See docs/guides/without-volumeattachments.md" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
