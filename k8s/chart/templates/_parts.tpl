{{/* The label by which network policies and monitoring find our pods, and what Helm recommends. Pods get
only the first: their templates must not change with the version of the chart. */}}
{{- define "lingua.labels" -}}
app.kubernetes.io/name: lingua-scheduler
{{ include "lingua.release" . }}
{{- end }}

{{- define "lingua.release" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "lingua.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* All settings of the pods, as a document: what the chart needs, then `settings`. */}}
{{- define "lingua.settings" -}}
{{- $every := ternary "[::]" "0.0.0.0" (eq .Values.ipFamily "IPv6") -}}
LINGUA_LOG_FORMAT: json
LINGUA_POOL_LISTEN: "{{ $every }}:7710"
LINGUA_POOL_METRICS_LISTEN: "{{ $every }}:9710"
LINGUA_DISPATCHER_LISTEN: "{{ $every }}:7720"
LINGUA_DISPATCHER_METRICS_LISTEN: "{{ $every }}:9720"
LINGUA_GATEWAY_LISTEN: "{{ $every }}:7730"
LINGUA_GATEWAY_WEB_LISTEN: "{{ $every }}:7740"
LINGUA_GATEWAY_METRICS_LISTEN: "{{ $every }}:9730"
LINGUA_CONSOLE_LISTEN: "{{ $every }}:7750"
LINGUA_CONSOLE_METRICS_LISTEN: "{{ $every }}:9750"
# All connections to the web entry come from the ingress.
LINGUA_WEB_CONNECTIONS_PER_ADDRESS: "0"
# Only for probes: no TLS, no auth, nothing but health.
LINGUA_POOL_HEALTH_LISTEN: "{{ $every }}:8710"
LINGUA_DISPATCHER_HEALTH_LISTEN: "{{ $every }}:8720"
LINGUA_GATEWAY_HEALTH_LISTEN: "{{ $every }}:8730"
LINGUA_CONSOLE_HEALTH_LISTEN: "{{ $every }}:8750"
# Headless Services: a name resolves to all ready pods, and clients spread over them.
LINGUA_POOL_ADDRESS: dns:///lingua-pool:7710
LINGUA_DISPATCHER_ADDRESS: dns:///lingua-dispatcher:7720
LINGUA_GATEWAY_ADDRESS: dns:///lingua-gateway:7730
LINGUA_DRAIN_GRACE_MS: "20000"
{{- if .Values.auth.enabled }}
LINGUA_AUTH: "on"
LINGUA_AUTH_SECRET_FILE: /etc/lingua/auth/secret
{{- if .Values.auth.jwks }}
LINGUA_AUTH_JWKS_FILE: /etc/lingua/auth/jwks.json
{{- end }}
{{- end }}
{{- if .Values.tls.enabled }}
LINGUA_TLS_CERT_FILE: /etc/lingua/tls/tls.crt
LINGUA_TLS_KEY_FILE: /etc/lingua/tls/tls.key
LINGUA_TLS_CA_FILE: /etc/lingua/tls/ca.crt
# Services call each other by names and addresses of pods; all certificates have this name.
LINGUA_TLS_SERVER_NAME: {{ .Values.tls.serverName }}
{{- end }}
{{- if eq .Values.ingress.type "envoy-gateway" }}
# The name by which browsers reach the web entry.
LINGUA_WEB_HOSTS: {{ .Values.ingress.hosts.web }}
{{- end }}
{{- end }}

{{- define "lingua.mergedSettings" -}}
{{ mergeOverwrite (include "lingua.settings" . | fromYaml) .Values.settings | toYaml }}
{{- end }}

{{/* Names are fixed, as in k8s/base: settings, policies and documentation use them. So a namespace has one
release. Takes root and name. */}}
{{- define "lingua.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "lingua.labels" .root | nindent 2 }}
{{- end }}

{{/* The Deployments of the layout, as JSON. */}}
{{- define "lingua.deployments" -}}
{{- $services := ternary (list "all") (list "pool" "dispatcher" "gateway") (eq .Values.layout "all") -}}
{{- ternary (append $services "console") $services .Values.console.enabled | toJson -}}
{{- end }}
