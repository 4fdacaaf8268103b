{{/* The sidecars that the controller has, with the names of their leases, as YAML. They make the names from that of the driver. */}}
{{- define "azuredisk.sidecarLeases" -}}
{{- $driver := regexReplaceAll "[^a-zA-Z0-9-]" .Values.driverName "-" -}}
provisioner: {{ $driver }}
{{- if eq (include "azuredisk.attachRequired" .) "true" }}
attacher: external-attacher-leader-{{ $driver }}
{{- end }}
{{- if .Values.controller.expand }}
resizer: external-resizer-{{ $driver }}
{{- end }}
{{- if include "azuredisk.snapshots" . }}
snapshotter: external-snapshotter-leader-{{ $driver }}
{{- end }}
{{- end -}}

{{/* The sidecars that listen on a port, with their ports, as YAML. */}}
{{- define "azuredisk.sidecarPorts" -}}
{{- range $name, $_ := include "azuredisk.sidecarLeases" . | fromYaml }}
{{- with (index $.Values.sidecars $name).httpPort }}
{{ $name }}: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Name of the service account of a sidecar. Input: dict root, name. */}}
{{- define "azuredisk.sidecarAccount" -}}
{{- if .root.Values.sidecars.ownServiceAccounts -}}
{{ include "azuredisk.fullname" .root }}-csi-{{ .name }}
{{- else -}}
{{ include "azuredisk.account" (dict "root" .root "component" "controller") }}
{{- end -}}
{{- end -}}

{{/*
The volumes with the tokens of the sidecars. Each is mounted where Kubernetes would mount the token of the pod's account, so Kubernetes does not mount that.
The keys are named so that a pod starts only when Kubernetes has written the token.
*/}}
{{- define "azuredisk.sidecarTokens" -}}
{{- if .Values.sidecars.ownServiceAccounts -}}
{{- range $name, $_ := include "azuredisk.sidecarLeases" . | fromYaml }}
- name: token-{{ $name }}
  secret:
    secretName: {{ include "azuredisk.sidecarAccount" (dict "root" $ "name" $name) }}
    defaultMode: 0440
    items:
      - {key: token, path: token}
      - {key: ca.crt, path: ca.crt}
      - {key: namespace, path: namespace}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Probes of a sidecar. It listens only when the driver is ready, which takes as long as the controller waits for the API server. Input: dict root, name. */}}
{{- define "azuredisk.sidecarProbes" -}}
{{- $get := printf "{path: /healthz/leader-election, port: csi-%s}" .name -}}
{{- if .root.Values.controller.hostNetwork }}{{ $get = printf "{host: 127.0.0.1, path: /healthz/leader-election, port: csi-%s}" .name }}{{ end -}}
startupProbe:
  httpGet: {{ $get }}
  periodSeconds: 2
  failureThreshold: 300
livenessProbe:
  httpGet: {{ $get }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
# Deployment Safeguards of AKS want both.
readinessProbe:
  httpGet: {{ $get }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{/* The part that all sidecars have in common. Input: dict root, name, values, and optionally env. */}}
{{- define "azuredisk.sidecar" -}}
- name: csi-{{ .name }}
  {{- include "azuredisk.imageOf" (dict "root" .root "image" .values.image) | nindent 2 }}
  {{- include "azuredisk.unprivileged" .root.Values.sidecars | nindent 2 }}
  resources:
    {{- toYaml .values.resources | nindent 4 }}
  {{- if .values.httpPort }}
  ports:
    - {name: csi-{{ .name }}, containerPort: {{ .values.httpPort }}}
  {{- include "azuredisk.sidecarProbes" . | nindent 2 }}
  {{- end }}
  volumeMounts:
    - {name: socket, mountPath: /csi}
    {{- if .root.Values.sidecars.ownServiceAccounts }}
    - {name: token-{{ .name }}, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    {{- end }}
  {{- with concat (.env | default list) .values.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  args:
    - --csi-address=/csi/csi.sock
    - --v={{ ternary (max 5 (int .root.Values.sidecars.verbosity)) .root.Values.sidecars.verbosity .root.Values.debugLogs }}
    - --timeout={{ .values.timeout }}
    - --kube-api-qps={{ .root.Values.sidecars.kubeAPIQPS }}
    - --kube-api-burst={{ .root.Values.sidecars.kubeAPIBurst }}
    - --leader-election
    - --leader-election-namespace={{ .root.Release.Namespace }}
    - --leader-election-lease-duration={{ .root.Values.leaderElection.leaseDuration }}
    - --leader-election-renew-deadline={{ .root.Values.leaderElection.renewDeadline }}
    - --leader-election-retry-period={{ .root.Values.leaderElection.retryPeriod }}
    {{- if .values.httpPort }}
    - --http-endpoint={{ include "azuredisk.listen" (dict "port" .values.httpPort "loopback" .root.Values.controller.hostNetwork) }}
    {{- end }}
{{- end -}}

{{/* With this csi-provisioner finds the Deployment that owns its CSIStorageCapacity objects. */}}
{{- define "azuredisk.podIdentity" -}}
- name: NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end -}}

{{- define "azuredisk.sidecars" -}}
{{- $sidecars := .Values.sidecars -}}
{{- $provisioner := dict "root" . "name" "provisioner" "values" $sidecars.provisioner -}}
{{- if .Values.csiDriver.storageCapacity -}}
{{- $provisioner = merge (dict "env" (include "azuredisk.podIdentity" . | fromYamlArray)) $provisioner -}}
{{- end -}}
{{ include "azuredisk.sidecar" $provisioner }}
    - --strict-topology
    - --extra-create-metadata
    - --default-fstype=ext4
    - --worker-threads={{ $sidecars.provisioner.workerThreads }}
    - --retry-interval-max={{ $sidecars.provisioner.retryIntervalMax }}
    {{- if .Values.csiDriver.storageCapacity }}
    - --enable-capacity
    - --capacity-ownerref-level=2
    - --capacity-poll-interval={{ $sidecars.provisioner.capacityPollInterval }}
    - --kube-api-capacity-qps={{ .Values.sidecars.kubeAPIQPS }}
    - --kube-api-capacity-burst={{ .Values.sidecars.kubeAPIBurst }}
    {{- end }}
    {{- with $sidecars.provisioner.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- if eq (include "azuredisk.attachRequired" .) "true" }}
{{ include "azuredisk.sidecar" (dict "root" . "name" "attacher" "values" $sidecars.attacher) }}
    - --default-fstype=ext4
    - --worker-threads={{ $sidecars.attacher.workerThreads }}
    - --retry-interval-start={{ $sidecars.attacher.retryIntervalStart }}
    - --retry-interval-max={{ $sidecars.attacher.retryIntervalMax }}
    - --reconcile-sync={{ $sidecars.attacher.reconcileSync }}
    {{- with $sidecars.attacher.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- if .Values.controller.expand }}
{{ include "azuredisk.sidecar" (dict "root" . "name" "resizer" "values" $sidecars.resizer) }}
    - --workers={{ $sidecars.resizer.workers }}
    - --retry-interval-max={{ $sidecars.resizer.retryIntervalMax }}
    - --handle-volume-inuse-error=false
    {{- with $sidecars.resizer.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- if include "azuredisk.snapshots" . }}
{{ include "azuredisk.sidecar" (dict "root" . "name" "snapshotter" "values" $sidecars.snapshotter) }}
    - --worker-threads={{ $sidecars.snapshotter.workerThreads }}
    - --extra-create-metadata
    - --feature-gates=CSIVolumeGroupSnapshot=false
    {{- with $sidecars.snapshotter.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}
