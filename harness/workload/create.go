package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters"
)

// The address plan of every lane. The first IPv4 address that is handed out is
// 10.10.10.10, as in the report.
const (
	cidr, poolStart, poolEnd    = "10.10.10.0/24", "10.10.10.10", "10.10.10.200"
	net6                        = "2001:db8:10::/64"
	cidr6, pool6Start, pool6End = "2001:db8:10::/120", "2001:db8:10::10", "2001:db8:10::c8"
	// The gateways are inside the pools: their bits are set, belong to no pod
	// and must never be cleared.
	gateway, gateway6 = "10.10.10.12", "2001:db8:10::12"
)

// evictionSeconds is how long a pod tolerates a dead node. Kubernetes' default
// of five minutes would only make a run longer.
const evictionSeconds = 1

func (l *Lane) createNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.Namespace, Labels: l.labels(), Annotations: l.annotations()}}
	if _, err := l.access.Core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", l.Namespace, err)
	}
	return nil
}

func (l *Lane) createNetwork(ctx context.Context) error {
	if l.Spec.Shared != nil {
		return l.rememberOthers(ctx)
	}
	u, err := l.networkObject()
	if err != nil {
		return err
	}
	networks := l.access.Danm.Networks(l.Network.Kind, l.Network.Namespace)
	_, err = networks.Create(ctx, u, metav1.CreateOptions{})
	if err != nil && strings.Contains(err.Error(), "admission webhook") {
		// DANM's own webhook makes the bitmaps and refuses those that are brought.
		for _, family := range []danm.Family{danm.IPv4, danm.IPv6} {
			unstructured.RemoveNestedField(u.Object, "spec", "Options", family.Field())
		}
		_, err = networks.Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", l.Network, err)
	}
	return nil
}

func (l *Lane) networkObject() (*unstructured.Unstructured, error) {
	options := map[string]any{"host_device": "ens4", "container_prefix": "eth", "rt_tables": int64(200)}
	if l.Spec.Network.HasIPv4() {
		if err := l.addPool(options, danm.IPv4); err != nil {
			return nil, err
		}
	}
	if l.Spec.Network.HasIPv6() {
		if err := l.addPool(options, danm.IPv6); err != nil {
			return nil, err
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"NetworkID": "test-net1", "NetworkType": "ipvlan", "Options": options},
	}}
	u.SetGroupVersionKind(l.access.Danm.Group.GroupVersion().WithKind(string(l.Network.Kind)))
	u.SetNamespace(l.Network.Namespace)
	u.SetName(l.Network.Name)
	u.SetLabels(l.labels())
	u.SetAnnotations(l.annotations())
	return u, nil
}

// addPool writes prefix, pool, gateway and the empty bitmap of a family.
func (l *Lane) addPool(options map[string]any, family danm.Family) error {
	spec := ipam.Spec{Object: l.Network.String(), CIDR: cidr}
	routes, via, target := "routes", gateway, "10.20.0.0/16"
	if family == danm.IPv6 {
		spec = ipam.Spec{Object: l.Network.String(), CIDR: cidr6, IPv6: true}
		routes, via, target = "routes6", gateway6, "2001:db8:20::/64"
		options["net6"] = net6
		options["allocation_pool_v6"] = map[string]any{"start": pool6Start, "end": pool6End, "cidr": cidr6}
	} else {
		options["cidr"] = cidr
		options["allocation_pool"] = map[string]any{"start": poolStart, "end": poolEnd}
	}
	if l.Spec.Network.Gateway {
		options[routes] = map[string]any{target: via}
		spec.Gateways = []string{via}
	}
	empty, err := ipam.Empty(spec)
	if err != nil {
		return fmt.Errorf("making an empty bitmap: %w", err)
	}
	options[family.Field()] = empty
	return nil
}

// annotation asks for the lane's interfaces as a user of DANM would.
func (l *Lane) annotation() (string, error) {
	key := map[danm.NetworkKind]string{
		danm.DanmNet: "network", danm.TenantNetwork: "tenantNetwork", danm.ClusterNetwork: "clusterNetwork",
	}[l.Network.Kind]
	request := map[string]string{key: l.Network.Name}
	if l.Spec.Network.HasIPv4() {
		request["ip"] = "dynamic"
	}
	if l.Spec.Network.HasIPv6() {
		request["ip6"] = "dynamic"
	}
	list := make([]map[string]string, l.Spec.Interfaces)
	for i := range list {
		list[i] = request
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encoding interfaces: %w", err)
	}
	return string(text), nil
}

func (l *Lane) createStatefulSet(ctx context.Context) error {
	set, err := l.statefulSet()
	if err != nil {
		return err
	}
	if _, err := l.access.Core.AppsV1().StatefulSets(l.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating StatefulSet in %s: %w", l.Namespace, err)
	}
	return nil
}

func (l *Lane) statefulSet() (*appsv1.StatefulSet, error) {
	annotation, err := l.annotation()
	if err != nil {
		return nil, err
	}
	labels, replicas := l.labels(), int32(l.Spec.Replicas)
	labels["app"] = StatefulSet
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: StatefulSet, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         StatefulSet,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: map[string]string{"app": StatefulSet}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{l.access.Danm.Group.InterfacesAnnotation(): annotation}},
				Spec:       l.podSpec(),
			},
		},
	}, nil
}

func (l *Lane) podSpec() corev1.PodSpec {
	seconds, noToken, grace := int64(evictionSeconds), false, l.Spec.GracePeriod
	tolerate := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
	}
	return corev1.PodSpec{
		NodeSelector:                  map[string]string{clusters.LaneLabel: l.label()},
		Tolerations:                   []corev1.Toleration{tolerate(corev1.TaintNodeNotReady), tolerate(corev1.TaintNodeUnreachable)},
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &noToken,
		Containers:                    []corev1.Container{{Name: "pause", Image: cmp.Or(l.access.Image, "pause"), ImagePullPolicy: corev1.PullIfNotPresent}},
	}
}
