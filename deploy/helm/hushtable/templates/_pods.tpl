{{/* What all pods have. (dict "root" . "component" "shard" "own" .Values.shards) */}}
{{- define "hushtable.podSpec" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "hushtable.serviceAccount" .root }}
automountServiceAccountToken: false
# Kubernetes would set HUSHTABLE_PORT for a service called hushtable, which is a setting's name.
enableServiceLinks: false
# Sleep, then drain, and some seconds to end: derived, so that no value can make it too short.
terminationGracePeriodSeconds: {{ add .own.preStopSeconds .own.drainSeconds 10 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $values.apartFromOtherSide (eq $values.scheme "pair") }}
affinity: {{- include "hushtable.apart" .root | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A machine's owner sees what is in its memory: one machine never has both sides' keys. */}}
{{- define "hushtable.apart" -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      namespaceSelector: {}
      labelSelector:
        matchExpressions:
          - {key: hushtable.internal/side, operator: Exists}
          - {key: hushtable.internal/side, operator: NotIn, values: [{{ .Values.side }}]}
{{- end -}}

{{/* Replicas of one shard in different zones and on different machines. (dict "spread" ... "labels" ...) */}}
{{- define "hushtable.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: {{ .spread.zone }}
    labelSelector:
      matchLabels: {{- .labels | nindent 8 }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ .spread.host }}
    labelSelector:
      matchLabels: {{- .labels | nindent 8 }}
{{- end -}}

{{- define "hushtable.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/*
Started: it answers; a front, which waits for shards by itself, is given a minute more than it waits. Ready: it
serves an announced version. Alive: the process, however busy.
*/}}
{{- define "hushtable.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: {{ add 6 (div (add .own.startupSecondsMax 9) 10) }}
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
lifecycle:
  # Still served meanwhile: connections outlive a pod's place in a service by some seconds.
  preStop:
    sleep: {seconds: {{ .own.preStopSeconds }}}
{{- end -}}

{{/* A container that fetches. (dict "root" . "mode" "once" "part" (list "--shard" "3")) */}}
{{- define "hushtable.fetcher" -}}
- name: {{ eq .mode "once" | ternary "fetch" "follow" }}
  image: {{ include "hushtable.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [/bin/sh, /etc/hushtable/scripts/fetch.sh]
  {{- $of := eq .root.Values.scheme "onion" | ternary (list "--scheme" "onion") list }}
  args: {{ concat (list .mode) $of .part | toJson }}
  env:
    - {name: FETCH_FOLDER, value: /var/lib/hushtable}
    - {name: FETCH_SOURCE, value: /etc/hushtable/bundle/source}
    - {name: FETCH_KEEP, value: {{ .root.Values.bundle.keep | quote }}}
    - {name: FETCH_EVERY_S, value: {{ .root.Values.bundle.everySeconds | quote }}}
    {{- with .root.Values.bundle.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .root.Values.bundle.envFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "hushtable.containerSecurity" .root | nindent 2 }}
  resources: {{- toYaml .root.Values.bundle.resources | nindent 4 }}
  volumeMounts:
    - {name: bundles, mountPath: /var/lib/hushtable}
    - {name: wanted, mountPath: /etc/hushtable/bundle, readOnly: true}
    - {name: scripts, mountPath: /etc/hushtable/scripts, readOnly: true}
    - {name: scratch, mountPath: /tmp}
    {{- if .root.Values.bundle.claim }}
    - {name: source, mountPath: /srv/bundles, readOnly: true}
    {{- end }}
{{- end -}}

{{/* Volumes of a fetcher and of the server beside it. A volume `bundles` that is a claim is not here. */}}
{{- define "hushtable.volumes" -}}
- name: wanted
  configMap: {name: {{ include "hushtable.name" .root }}-bundle}
- name: scripts
  configMap: {name: {{ include "hushtable.name" .root }}-scripts}
- name: scratch
  emptyDir: {sizeLimit: 1Gi}
{{- if .emptyDir }}
- name: bundles
  emptyDir: {sizeLimit: {{ .root.Values.bundle.volume.size }}}
{{- end }}
{{- if .root.Values.bundle.claim }}
- name: source
  persistentVolumeClaim: {claimName: {{ .root.Values.bundle.claim }}, readOnly: true}
{{- end }}
{{- end -}}
