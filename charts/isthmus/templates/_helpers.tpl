{{- define "isthmus.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Release and chart name, at most 40 characters so that suffixes fit into a label. */}}
{{- define "isthmus.fullname" -}}
{{- $name := include "isthmus.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "isthmus.selectorLabels" -}}
app.kubernetes.io/name: isthmus-operator
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "isthmus.labels" -}}
{{ include "isthmus.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "isthmus.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-operator" (include "isthmus.fullname" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An image's name: (dict "image" .Values.image "root" $). The digest wins over the tag. */}}
{{- define "isthmus.image" -}}
{{- if eq .image.tag "latest" -}}
{{- fail (printf "image %s: tag latest names something else tomorrow; give a version or a digest" .image.repository) -}}
{{- end -}}
{{- $name := .image.repository -}}
{{- if .image.registry -}}
{{- $name = printf "%s/%s" .image.registry $name -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Not empty if something for the Prometheus operator is wanted: (list .Values.podMonitor $). */}}
{{- define "isthmus.monitored" -}}
{{- $api := (last .).Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if ternary $api (first .).enabled (eq (toString (first .).enabled) "auto") -}}yes{{- end -}}
{{- end -}}

{{/* Namespaces that the operator watches, as JSON: the release's own one without a list, none for all namespaces. */}}
{{- define "isthmus.watched" -}}
{{- if has "*" .Values.watchNamespaces -}}
[]
{{- else -}}
{{- default (list .Release.Namespace) .Values.watchNamespaces | toJson -}}
{{- end -}}
{{- end -}}

{{/* Where the chart's test runs: the release's namespace if the operator watches it, else the first it does. */}}
{{- define "isthmus.testNamespace" -}}
{{- $watched := include "isthmus.watched" . | fromJsonArray -}}
{{- if or (empty $watched) (has .Release.Namespace $watched) -}}
{{- .Release.Namespace -}}
{{- else -}}
{{- first $watched -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do where it watches. Nothing is granted that its code does not use. */}}
{{- define "isthmus.rules" -}}
- apiGroups: [isthmus.dev]
  resources: [routers, connectors, linkroutes, relaysites, gossiprouters, sslprofiles, flowlogs, flowanalyses]
  verbs: [list, watch]
- apiGroups: [isthmus.dev]
  resources: [routers/status, connectors/status, linkroutes/status, relaysites/status, gossiprouters/status, sslprofiles/status, flowlogs/status, flowanalyses/status]
  verbs: [patch]
# Owner references that block the owner's deletion.
- apiGroups: [isthmus.dev]
  resources: [routers/finalizers, gossiprouters/finalizers, sslprofiles/finalizers, flowlogs/finalizers, flowanalyses/finalizers]
  verbs: [update]
# Everything a Router is made of. Secrets also because resources refer to them, and for the ordinals of SslProfiles.
# Only what a changed resource no longer wants is deleted, and what Kubernetes has not deleted with an earlier resource of
# the same name; the rest goes with its owner.
- apiGroups: [""]
  resources: [secrets, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
# The volume of a FlowLog, which is never deleted.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [get, list, watch, create, patch, delete]
# A driver of Spark may make its executors: the operator may give exactly that role to the account of a FlowAnalysis.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [get, list, watch, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [{{ if (include "isthmus.watched" . | fromJsonArray) }}roles{{ else }}clusterroles{{ end }}]
  resourceNames: [{{ include "isthmus.fullname" . }}-flow-driver]
  verbs: [bind]
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch]
# Those of Deployments control pods.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# The pods' states, and an annotation that makes the kubelet sync a changed Secret at once.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, list]
{{- end -}}

{{/* What the driver of a FlowAnalysis may do in its namespace: make executors, watch them and clean up after them. */}}
{{- define "isthmus.driverRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, deletecollection]
- apiGroups: [""]
  resources: [services]
  verbs: [deletecollection]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, deletecollection]
{{- if .Values.admissionPolicy.enabled }}
# No request has this verb. The admission policies recognize accounts of drivers by it.
- apiGroups: [isthmus.dev]
  resources: [flowanalyses]
  verbs: [drive]
{{- end }}
{{- end -}}

{{- /* Match conditions, in CEL, of requests of accounts of drivers: they have the verb above, and the operator gives each
one a name that ends with `-analysis`. Accounts that have every right may have that verb as well. */}}
{{- define "isthmus.byDrivers" -}}
- name: account
  expression: >-
    request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')
    && request.userInfo.username.endsWith('-analysis')
- name: driver
  expression: >-
    authorizer.group('isthmus.dev').resource('flowanalyses').namespace(request.namespace).check('drive').allowed()
{{- end -}}

{{- /* Variables, in CEL, of such policies: the name of the account, that of the FlowAnalysis's objects without the ending,
and the uid of the pod that has the token. Other tokens of the account, such as those of Secrets, have no pod. */}}
{{- define "isthmus.driverVariables" -}}
- name: account
  expression: request.userInfo.username.split(':')[3]
- name: analysis
  expression: variables.account.substring(0, size(variables.account) - size('-analysis'))
- name: driver
  expression: >-
    has(request.userInfo.extra) && 'authentication.kubernetes.io/pod-uid' in request.userInfo.extra
    ? request.userInfo.extra['authentication.kubernetes.io/pod-uid'].join(',') : ''
{{- end -}}

{{- /* Whether the image `expression` begins with one of a list of prefixes, in CEL: (list EXPRESSION PREFIXES). */}}
{{- define "isthmus.imageUnder" -}}
{{- $image := first . -}}
{{ include "isthmus.celStrings" (last .) }}.exists(prefix,
{{ $image }} == prefix || {{ $image }}.startsWith(prefix.endsWith('/') ? prefix : prefix + '/')
|| (({{ $image }}.startsWith(prefix + ':') || {{ $image }}.startsWith(prefix + '@'))
&& !{{ $image }}.substring(size(prefix)).contains('/')))
{{- end -}}

{{- /* Whether no rule of an affinity names other namespaces, in CEL: (list AFFINITY $), with a dynamic value. */}}
{{- define "isthmus.ownNamespace" -}}
{{- $affinity := first . -}}
{{- $declared := include "isthmus.restrictions" (last .) | fromJson -}}
{{ include "isthmus.celStrings" $declared.affinities }}.all(kind, !(kind in {{ $affinity }})
|| {{ $affinity }}[kind].all(rule, {{ $affinity }}[kind][rule].all(item,
{{ include "isthmus.celStrings" $declared.otherNamespaces }}.all(field, !(field in item)
&& !('podAffinityTerm' in item && field in item.podAffinityTerm)))))
{{- end -}}

{{/* What puts an admission policy into force where the operator watches: (list NAME $), or (list NAME PARAMREF $) with
a paramRef as YAML. */}}
{{- define "isthmus.admissionBinding" -}}
{{- $root := last . -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ first . }}
  labels:
    {{- include "isthmus.labels" $root | nindent 4 }}
spec:
  policyName: {{ first . }}
  validationActions: [Deny]
  {{- if eq (len .) 3 }}
  paramRef:
    {{- index . 1 | nindent 4 }}
  {{- end }}
  {{- with (include "isthmus.watched" $root | fromJsonArray) }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: In
          values:
            {{- toYaml . | nindent 12 }}
  {{- end }}
{{- end -}}

{{- /* The pods of drivers in the namespace of a request, as a paramRef. With Deny, the API server would refuse all pods
of a namespace without a driver, before it evaluates match conditions. */}}
{{- define "isthmus.driverPods" -}}
selector:
  matchLabels:
    app.kubernetes.io/name: isthmus-flow-analysis
    app.kubernetes.io/component: flow-driver
parameterNotFoundAction: Allow
{{- end -}}

{{- /* A validation that an object of executors has no other fields: (list GROUP OBJECT FIELDS), or (list GROUP "item"
FIELDS LIST) for each item of a list. OBJECT and LIST are CEL. */}}
{{- define "isthmus.onlyFields" -}}
{{- $group := index . 0 -}}
{{- $object := index . 1 -}}
{{- $fields := index . 2 -}}
{{- $others := printf "%s.filter(key, !(key in %s)).map(key, string(key)).join(', ')" $object (include "isthmus.celStrings" $fields) -}}
{{- if eq (len .) 4 -}}
{{- $others = printf "%s.map(item, %s).filter(text, text != '').join(', ')" (index . 3) $others -}}
{{- end -}}
- expression: >-
    {{ $others }} == ''
  messageExpression: >-
    'executors have fields of {{ $group }} that neither the operator nor Spark sets: ' + {{ $others }}
  message: executors have only fields of {{ $group }} that the operator and Spark set
{{- end -}}

{{- /* A list of strings in CEL. The schema of the values admits no quotes in them. */}}
{{- define "isthmus.celStrings" -}}
[{{ range $index, $item := . }}{{ if $index }}, {{ end }}{{ $item | squote }}{{ end }}]
{{- end -}}

{{- /* Whether `labels` or `annotations` may have the key `key`, in CEL. */}}
{{- define "isthmus.allowedKey" -}}
{{- $restrictions := (last .).Values.restrictions -}}
{{- $declared := include "isthmus.restrictions" (last .) | fromJson -}}
{{- $plain := $declared.plainLabels -}}
{{- if eq (first .) "annotations" }}{{ $plain = $declared.plainAnnotations }}{{ end -}}
!key.startsWith({{ $declared.ownKeys | squote }})
{{- if not (has "*" $restrictions.allowedMetadata) }} && (
{{- if eq (first .) "annotations" }}!key.contains('/') || {{ end -}}
{{ include "isthmus.celStrings" (concat $plain $restrictions.allowedMetadata) }}.exists(entry, key == entry || (entry.endsWith('/') && key.startsWith(entry))))
{{- end -}}
{{- end -}}
