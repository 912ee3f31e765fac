{{- define "lately.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lately.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lately.labels" -}}
{{ include "lately.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "lately.check" -}}
{{- if not (or .Values.insecure .Values.passwords.existingSecret) -}}
{{- fail "set passwords.existingSecret to a Secret with a password, or insecure=true: then anybody who reaches the server can count, read and delete" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.cluster.urls) (not .Values.cluster.existingSecret) -}}
{{- fail "replicas is more than 1: set cluster.urls or cluster.existingSecret, or each pod counts for itself" -}}
{{- end -}}
{{- if and .Values.cluster.urls .Values.cluster.existingSecret -}}
{{- fail "set cluster.urls or cluster.existingSecret, not both" -}}
{{- end -}}
{{- with .Values.cluster.upstream -}}
{{- if and .urls .existingSecret -}}
{{- fail "set cluster.upstream.urls or cluster.upstream.existingSecret, not both" -}}
{{- end -}}
{{- if and (or .urls .existingSecret) (not $.Values.cluster.urls) (not $.Values.cluster.existingSecret) -}}
{{- fail "cluster.upstream is the server that data centres share: set cluster.urls or cluster.existingSecret, too, for that of this one" -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not (contains "$(POD_NAME)" .Values.cluster.node)) -}}
{{- fail "replicas is more than 1: cluster.node needs $(POD_NAME), or the pods share a name" -}}
{{- end -}}
{{- end -}}

{{- /* Not empty if gRPC is served. */ -}}
{{- define "lately.grpc" -}}
{{- if or .Values.grpc .Values.ratelimit.existingConfigMap -}}yes{{- end -}}
{{- end -}}

{{- /* The names by which HTTP clients in the cluster call the server. */ -}}
{{- define "lately.hosts" -}}
{{- $name := include "lately.name" . -}}
{{- $space := .Release.Namespace -}}
{{- $hosts := list $name (printf "%s.%s" $name $space) (printf "%s.%s.svc" $name $space) (printf "%s.%s.svc.cluster.local" $name $space) -}}
{{- concat $hosts .Values.hosts | toJson -}}
{{- end -}}
