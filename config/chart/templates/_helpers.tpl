{{- define "kyu.policies" -}}
{{- $has := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if eq (toString .Values.policies) "auto" }}{{ $has }}{{ else }}{{ .Values.policies }}{{ end }}
{{- end }}
