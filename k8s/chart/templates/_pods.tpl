{{/* What the Deployments of all services have in common, as k8s/base/every-pod.yaml. */}}
{{- define "lingua.deployment" -}}
revisionHistoryLimit: 3
strategy:
  rollingUpdate:
    maxSurge: 1
    maxUnavailable: 0
{{- end }}

{{/* Of the metadata of a pod: a changed setting restarts the pods. */}}
{{- define "lingua.podAnnotations" -}}
checksum/settings: {{ include "lingua.mergedSettings" . | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The pod around its container. Takes root, and the name of the Secret with its certificate. */}}
{{- define "lingua.pod" -}}
{{- $values := .root.Values -}}
automountServiceAccountToken: false
# These variables would begin with LINGUA_, as settings do.
enableServiceLinks: false
# preStop, LINGUA_DRAIN_GRACE_MS, and ten seconds to flush traces and exit.
{{- $settings := include "lingua.mergedSettings" .root | fromYaml }}
terminationGracePeriodSeconds: {{ add 20 (divf $settings.LINGUA_DRAIN_GRACE_MS 1000 | ceil) }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
  {{- if or $values.auth.enabled $values.tls.enabled }}
  # Makes the files readable only for the group of the process.
  fsGroup: 65532
  {{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets: {{ include "lingua.named" . }}
{{- end }}
# Spread over machines and zones, if there are several.
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: {{ $values.topologySpread }}
    labelSelector:
      matchLabels:
        app.kubernetes.io/name: lingua-scheduler
    # Each service separately, and the new pods of a roll-out without the old ones.
    matchLabelKeys: [app.kubernetes.io/component, pod-template-hash]
  {{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if or $values.auth.enabled $values.tls.enabled }}
volumes:
  {{- if $values.tls.enabled }}
  - name: tls
    secret:
      secretName: {{ .certificate }}
      defaultMode: 0440
  {{- end }}
  {{- if $values.auth.enabled }}
  - name: auth
    secret:
      secretName: {{ $values.auth.secret }}
      defaultMode: 0440
  {{- end }}
{{- end }}
{{- end }}

{{/* The container, except for its arguments, variables, ports and probes. Takes root and the values of
the service. */}}
{{- define "lingua.container" -}}
{{- $values := .root.Values -}}
name: lingua
image: {{ include "lingua.image" .root }}
{{- with $values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
envFrom:
  - configMapRef:
      name: lingua-settings
lifecycle:
  preStop:
    # Until no new clients arrive: endpoints, and the 5 s lifetime of DNS answers. Only then SIGTERM
    # tells the clients to leave, and they find the other pods.
    sleep:
      seconds: 10
# A process uses at most one core. No CPU limit: a throttled process would miss ACKs.
resources:
  {{- toYaml (mergeOverwrite (deepCopy $values.resources) .service.resources) | nindent 2 }}
{{ include "lingua.restricted" . }}
{{- if or $values.auth.enabled $values.tls.enabled }}
volumeMounts:
  {{- if $values.auth.enabled }}
  - name: auth
    mountPath: /etc/lingua/auth
    readOnly: true
  {{- end }}
  {{- if $values.tls.enabled }}
  - name: tls
    mountPath: /etc/lingua/tls
    readOnly: true
  {{- end }}
{{- end }}
{{- end }}

{{- define "lingua.named" -}}
[{{ range $at, $name := . }}{{ if $at }}, {{ end }}{name: {{ $name }}}{{ end }}]
{{- end }}

{{/* Of every container. */}}
{{- define "lingua.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "lingua.instanceId" -}}
- name: LINGUA_INSTANCE_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{- define "lingua.redisUrl" -}}
- name: LINGUA_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.secret.name }}
      key: {{ .Values.redis.secret.key }}
{{- end }}

{{/* Other dispatchers relay to this particular pod, so this must not be the name of a Service. */}}
{{- define "lingua.advertise" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: LINGUA_DISPATCHER_ADVERTISE
  value: {{ ternary "[$(POD_IP)]:7720" "$(POD_IP):7720" (eq .Values.ipFamily "IPv6") | quote }}
{{- end }}

{{/* All probes use a separate port without TLS, because kubelets cannot use TLS for gRPC. Takes the port
and the full name of the gRPC service. */}}
{{- define "lingua.probes" -}}
# Whether it answers, not whether it serves: without Redis it starts as well, and waits.
startupProbe:
  grpc:
    port: {{ .port }}
    service: liveness
  periodSeconds: 1
  failureThreshold: 60
# Whether it serves: not while Redis is down or while it drains.
readinessProbe:
  grpc:
    port: {{ .port }}
    service: {{ .service }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
# Whether its event loop answers. It ignores Redis, which a restart does not bring back.
livenessProbe:
  grpc:
    port: {{ .port }}
    service: liveness
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
