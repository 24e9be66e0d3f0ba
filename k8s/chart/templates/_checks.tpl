{{/* Values that are right one by one, and wrong together. The schema checks each alone. */}}
{{- define "lingua.checks" -}}
{{- with .Values -}}
{{- if not .redis.secret.name -}}
{{- fail "redis.secret.name is empty: create a Secret with the URL of Redis and give its name, or set redis.inCluster.enabled=true for a trial" -}}
{{- end -}}
{{- if eq .ingress.type "envoy-gateway" -}}
{{- if not .tls.enabled -}}
{{- fail "ingress.type is envoy-gateway, which connects to the pods with TLS: set tls.enabled=true and create the Secrets of tls.secrets (docs/security.md), or choose ingress.type=entries" -}}
{{- end -}}
{{- range $name, $host := .ingress.hosts -}}
{{- if not $host -}}
{{- fail (printf "ingress.hosts.%s is empty: ingress.type envoy-gateway needs the names by which clients, browsers (web) and nodes reach it" $name) -}}
{{- end -}}
{{- end -}}
{{- if ne (values .ingress.hosts | uniq | len) 3 -}}
{{- fail "ingress.hosts needs three different names: a listener cannot have routes of gRPC and of HTTP for the same name" -}}
{{- end -}}
{{- end -}}
{{- if and .simNodes.enabled (or .auth.enabled .tls.enabled) -}}
{{- fail "simNodes.enabled needs auth.enabled=false and tls.enabled=false, because simulated nodes have no token: use nodes instead" -}}
{{- end -}}
{{- range $service := list "pool" "dispatcher" "gateway" -}}
{{- with (index $.Values $service).autoscaling -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "%s.autoscaling.minReplicas is %v, more than maxReplicas, %v" $service .minReplicas .maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $node := .nodes -}}
{{- if and $.Values.auth.enabled (not $node.tokenSecret) -}}
{{- fail (printf "nodes.%s.tokenSecret is missing, because auth.enabled is true: create a token with `lingua token node`, and a Secret that has it as `token`" $name) -}}
{{- end -}}
{{- with $node.keda -}}
{{- if gt (int (.minReplicas | default 1)) (int .maxReplicas) -}}
{{- fail (printf "nodes.%s.keda.minReplicas is %v, more than maxReplicas, %v" $name .minReplicas .maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
