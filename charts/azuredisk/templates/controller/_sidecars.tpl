{{/* The part that all sidecars have in common. Input: dict root, name, values, and optionally env. */}}
{{- define "azuredisk.sidecar" -}}
- name: csi-{{ .name }}
  image: {{ printf "%s:%s" .values.image.repository .values.image.tag | quote }}
  imagePullPolicy: {{ .values.image.pullPolicy }}
  {{- include "azuredisk.unprivileged" .root | nindent 2 }}
  resources:
    {{- toYaml .values.resources | nindent 4 }}
  volumeMounts:
    - {name: socket, mountPath: /csi}
  {{- with .env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  args:
    - --csi-address=/csi/csi.sock
    - --v={{ .root.Values.sidecars.verbosity }}
    - --timeout={{ .values.timeout }}
    - --kube-api-qps={{ .root.Values.sidecars.kubeAPIQPS }}
    - --kube-api-burst={{ .root.Values.sidecars.kubeAPIBurst }}
    - --leader-election
    - --leader-election-namespace={{ .root.Release.Namespace }}
    - --leader-election-lease-duration={{ .root.Values.leaderElection.leaseDuration }}
    - --leader-election-renew-deadline={{ .root.Values.leaderElection.renewDeadline }}
    - --leader-election-retry-period={{ .root.Values.leaderElection.retryPeriod }}
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
    {{- with $sidecars.snapshotter.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}
