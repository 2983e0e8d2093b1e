package fleet

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/danm-chaos/danm-chaos/clusters"
)

const (
	namespacePrefix = "chaos-fleet-"
	accountName     = "shard"
	resultPrefix    = "shard-"
	resultKey       = "result"
	// shardsAnnotation of a Job holds the names of its shards, in the order of
	// its indexes.
	shardsAnnotation = "chaos.danm/shards"
	// Flags and variables that tell a pod which shard it is to do.
	shardsFlag    = "--shards"
	namespaceFlag = "--namespace"
	indexVariable = "JOB_COMPLETION_INDEX" // set by Kubernetes
	// stopSeconds is how long a pod may take to end.
	stopSeconds     = 5
	patienceSeconds = 30
)

// Resources of a pod: one core, and the memory of one worker (1 GiB) with the
// program that feeds it.
var resources = corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1536Mi"),
}

func namespaceName(runID string) string { return namespacePrefix + clusters.RunLabelValue(runID) }

func resultName(shard string) string { return resultPrefix + shard }

// marks are on everything that a fleet makes.
func marks(runID string, expires time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Labels:      map[string]string{clusters.RunLabel: clusters.RunLabelValue(runID), clusters.FleetLabel: "true"},
		Annotations: map[string]string{clusters.ExpiresAnnotation: expires.UTC().Format(time.RFC3339)},
	}
}

func namespaceOf(runID string, expires time.Time) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: marks(runID, expires)}
	ns.Name = namespaceName(runID)
	// Our pods need nothing that this forbids, so that nobody else's may have it.
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	return ns
}

// accountOf returns who the pods are and the one thing that they may do: store a
// result. They cannot even read one.
func accountOf(runID string, expires time.Time) (*corev1.ServiceAccount, *rbacv1.Role, *rbacv1.RoleBinding) {
	meta := marks(runID, expires)
	meta.Name, meta.Namespace = accountName, namespaceName(runID)
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: accountName},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: accountName}},
	}
	return &corev1.ServiceAccount{ObjectMeta: meta}, role, binding
}

// jobOf returns the Job. A pod that fails is made again, up to a number for each
// index. So is one that is being deleted, without waiting for its end: on a lost
// node that never comes, and two pods of one shard only find the same twice.
func jobOf(o Options, name string, expires time.Time) *batchv1.Job {
	meta := marks(o.RunID, expires)
	meta.Name, meta.Namespace = name, namespaceName(o.RunID)
	meta.Annotations[shardsAnnotation] = strings.Join(o.Shards, ",")
	template := corev1.PodTemplateSpec{ObjectMeta: marks(o.RunID, expires), Spec: podOf(o)}
	count := int32(len(o.Shards))
	return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
		CompletionMode: ptr.To(batchv1.IndexedCompletion), Completions: &count, Parallelism: &count,
		BackoffLimitPerIndex: ptr.To(int32(o.Attempts - 1)), PodReplacementPolicy: ptr.To(batchv1.TerminatingOrFailed),
		ActiveDeadlineSeconds: ptr.To(int64(o.Lifetime.Seconds())), Template: template,
	}}
}

// patience is how long pods stay on a node that is not heard of. Kubernetes
// gives them five minutes, because most have something to lose.
func patience() []corev1.Toleration {
	var all []corev1.Toleration
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		all = append(all, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: ptr.To(int64(patienceSeconds))})
	}
	return all
}

func podOf(o Options) corev1.PodSpec {
	args := append(append([]string{}, o.Args...), namespaceFlag, namespaceName(o.RunID), shardsFlag, strings.Join(o.Shards, ","))
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: accountName, TerminationGracePeriodSeconds: ptr.To(int64(stopSeconds)),
		EnableServiceLinks: ptr.To(false), Tolerations: patience(),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), RunAsGroup: ptr.To(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: accountName, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
			Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
			// The last words of a pod that fails say why its shard is lost.
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}
