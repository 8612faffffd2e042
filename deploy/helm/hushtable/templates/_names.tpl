{{/* The name of all that a release makes: short enough for "-shard-4095" and what a controller adds. */}}
{{- define "hushtable.name" -}}
{{- $name := .Values.nameOverride | default (printf "%s-%s" .Release.Name (include "hushtable.side" .)) -}}
{{- $name | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/* Whose servers they are, in names, labels and certificates: of a server that is asked alone, nobody's side. */}}
{{- define "hushtable.side" -}}
{{- eq .Values.scheme "onion" | ternary "single" .Values.side -}}
{{- end -}}

{{/* What selects a release's pods. A label of the other side is in none of it. */}}
{{- define "hushtable.selector" -}}
app.kubernetes.io/name: hushtable
app.kubernetes.io/instance: {{ .Release.Name }}
hushtable.internal/side: {{ include "hushtable.side" . }}
{{- end -}}

{{- define "hushtable.labels" -}}
{{ include "hushtable.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "hushtable.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "hushtable.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "hushtable.name" .) "default") -}}
{{- end -}}

{{- define "hushtable.scheme" -}}
{{- eq .Values.tls.mode "insecure" | ternary "http" "https" -}}
{{- end -}}

{{/* The DNS name of a pod of a shard: (list . shard replica). */}}
{{- define "hushtable.podName" -}}
{{- $root := index . 0 -}}
{{- $shard := printf "%s-shard-%d" (include "hushtable.name" $root) (int (index . 1)) -}}
{{- printf "%s-%d.%s.%s.svc.%s" $shard (int (index . 2)) $shard $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end -}}

{{/* The secrets that pods mount: cert-manager's, or those that values name. */}}
{{- define "hushtable.shardSecret" -}}
{{- $root := index . 0 -}}
{{- if eq $root.Values.tls.mode "secrets" -}}
{{- $root.Values.tls.secrets.shard -}}
{{- else -}}
{{- printf "%s-shard-%d-tls" (include "hushtable.name" $root) (int (index . 1)) -}}
{{- end -}}
{{- end -}}

{{- define "hushtable.frontSecret" -}}
{{- eq .Values.tls.mode "secrets" | ternary .Values.tls.secrets.front (printf "%s-front-tls" (include "hushtable.name" .)) -}}
{{- end -}}

{{- define "hushtable.frontClientSecret" -}}
{{- eq .Values.tls.mode "secrets" | ternary .Values.tls.secrets.frontClient (printf "%s-front-client-tls" (include "hushtable.name" .)) -}}
{{- end -}}

{{/* What the schema cannot say. Strings that name the other side: a value that was meant for it. */}}
{{- define "hushtable.checked" -}}
{{- if eq .Values.scheme "pair" -}}
{{- $side := .Values.side -}}
{{- $other := eq $side "left" | ternary "right" "left" -}}
{{- $own := omit .Values "bundle" "image" "global" -}}
{{- $word := printf "[^\"]*\\b%s\\b[^\"]*" $other -}}
{{- with regexFind (printf "\"%s\"" $word) (toJson $own) -}}
{{- fail (printf "\n\nside is %s, but the values have %s, which names the %s side. A deployment is one operator's and knows nothing of the other: give this one names of its own, and install the %s side elsewhere.\n" $side . $other $other) -}}
{{- end -}}
{{- with regexFind (printf "\\b%s\\b" $other) .Release.Name -}}
{{- fail (printf "\n\nside is %s, but the release is called %s: a release is of one side.\n" $side $.Release.Name) -}}
{{- end -}}
{{- with regexFind (printf "\\b%s\\b" $other) .Release.Namespace -}}
{{- fail (printf "\n\nside is %s, but the namespace is called %s: the two sides share no namespace, and better no cluster.\n" $side $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "certManager") (not .Values.ray.enabled) -}}
{{- if not (and .Values.tls.internalIssuer.name .Values.tls.publicIssuer.name .Values.tls.dnsNames) -}}
{{- fail "\n\ntls.mode is certManager, which needs tls.internalIssuer.name, tls.publicIssuer.name and at least one of tls.dnsNames. Give them, or certificates of your own (tls.mode: secrets), or tls.mode: insecure where something else encrypts each way.\n" -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.tls.mode "secrets" -}}
{{- if not (and .Values.tls.secrets.shard .Values.tls.secrets.frontClient .Values.tls.secrets.front) -}}
{{- fail "\n\ntls.mode is secrets, which needs tls.secrets.shard, tls.secrets.frontClient and tls.secrets.front: the names of secrets with tls.crt, tls.key and ca.crt.\n" -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "insecure") .Values.fronts.clientCaSecret -}}
{{- fail "\n\nfronts.clientCaSecret asks clients for certificates, which takes TLS: set tls.mode to certManager or secrets.\n" -}}
{{- end -}}
{{- if and .Values.ray.enabled (not .Values.ray.image) -}}
{{- fail "\n\nray.enabled needs ray.image: an image with hushtable and Ray of ray.version.\n" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor .Values.networkPolicy.enabled (not .Values.networkPolicy.monitoring) -}}
{{- fail "\n\nmonitoring.serviceMonitor needs networkPolicy.monitoring: without it the network policies keep Prometheus out.\n" -}}
{{- end -}}
{{- if gt (mul .Values.shards.count .Values.shards.replicas) 4096 -}}
{{- fail "\n\nshards.count times shards.replicas is over 4096: the fronts' list of servers would not fit a ConfigMap.\n" -}}
{{- end -}}
{{- if and .Values.priorityClass.create (not .Values.priorityClass.name) -}}
{{- fail "\n\npriorityClass.create needs priorityClass.name: classes belong to a whole cluster, so their names are chosen.\n" -}}
{{- end -}}
{{- end -}}
