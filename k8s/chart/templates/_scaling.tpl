{{/* PromQL: the slots that a group of nodes should have. Takes `keda` of the group.

Taken slots plus the slots that should be free, so that nodes are added while some are still free, and not
when all are taken. A node counts in each of its directions, and a taken slot is taken in all of them:
the busiest direction counts, not the sum.

It is an absolute number and not a ratio to the present slots: a pod that has started but is not connected
yet does not make the autoscaler add another one.

Autoscalers ignore differences of up to 10 %. Without the factor they would never add nodes to a large
group; with it, they do when no more than `freeSlots` are free. docs/decisions/0068 has the whole reason.

The series are those that monitoring/alerts.yml records. */}}
{{- define "lingua.wantedSlots" -}}
{{- $taken := list -}}
{{- range .directions -}}
{{- $labels := printf "{kind=%q,src=%q,tgt=%q}" .kind (lower .src) (lower .tgt) -}}
{{- $taken = append $taken (printf "(direction:lingua_pool_slots:min%s - direction:lingua_pool_free_slots:min%s)" $labels $labels) -}}
{{- end -}}
1.1 * (max({{ join " or " $taken }}) + {{ .freeSlots }})
{{- end }}
