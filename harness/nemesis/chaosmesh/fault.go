package chaosmesh

import (
	"fmt"
	"slices"
	"time"

	"github.com/chaos-mesh/chaos-mesh/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Action is a way in which Chaos Mesh breaks pods.
type Action string

// The actions. PodKill is over at once; the others last until they are healed.
const (
	PodKill          Action = "pod-kill"          // delete pods with grace period 0
	PodFailure       Action = "pod-failure"       // make their containers unable to run
	ContainerKill    Action = "container-kill"    // kill a container; its kubelet starts it again
	NetworkPartition Action = "network-partition" // cut pods off from addresses
	NetworkDelay     Action = "network-delay"
	NetworkLoss      Action = "network-loss"
	TimeOffset       Action = "time-offset"   // make the clock of a container jump
	StressCPU        Action = "stress-cpu"    // take processor time from a container
	StressMemory     Action = "stress-memory" // take memory of a container's share
)

// Actions lists them all.
func Actions() []Action {
	return []Action{PodKill, PodFailure, ContainerKill, NetworkPartition, NetworkDelay, NetworkLoss, TimeOffset, StressCPU, StressMemory}
}

// Sizes of what is done. They are no parameters, because a cleaner has to stand
// any; but memory that it has no share of would be a fault of its operator.
const (
	networkDelay = "500ms"
	networkLoss  = "30"
	timeOffset   = "-10m"
	stressCores  = 2
	stressLoad   = 100 // percent of each
	stressMemory = "200MB"
	// outlast is longer than any fault lasts: we heal, not the clock.
	outlast = time.Hour
)

// Fault says what to do to which pods.
type Fault struct {
	Action    Action
	Namespace string   // of the pods
	Pods      []string // by name, all of them
	Container string   // for what hits one and not the pod
	// Addresses are the ends from which NetworkPartition cuts off, and to which
	// delay and loss apply: of the API server, say.
	Addresses []string
}

func (f Fault) check() error {
	switch {
	case !slices.Contains(Actions(), f.Action):
		return fmt.Errorf("unknown action %q", f.Action)
	case f.Namespace == "" || len(f.Pods) == 0:
		return fmt.Errorf("%s names no pod", f.Action)
	case f.Container == "" && f.isOfContainer():
		return fmt.Errorf("%s names no container", f.Action)
	case len(f.Addresses) == 0 && f.isOfNetwork():
		return fmt.Errorf("%s names no address", f.Action)
	}
	return nil
}

func (f Fault) isOfNetwork() bool {
	return f.Action == NetworkPartition || f.Action == NetworkDelay || f.Action == NetworkLoss
}

func (f Fault) isOfContainer() bool {
	return f.Action == ContainerKill || f.Action == TimeOffset || f.isStress()
}

func (f Fault) isStress() bool { return f.Action == StressCPU || f.Action == StressMemory }

// resource is where the object of the fault is made.
func (f Fault) resource() schema.GroupVersionResource {
	plural := podChaos
	switch {
	case f.isOfNetwork():
		plural = networkChaos
	case f.Action == TimeOffset:
		plural = timeChaos
	case f.isStress():
		plural = stressChaos
	}
	return v1alpha1.SchemeGroupVersion.WithResource(plural)
}

// object returns the typed object. Every field is set, because nothing is
// defaulted where Chaos Mesh's webhooks are not registered.
func (f Fault) object(meta metav1.ObjectMeta) runtime.Object {
	pods := v1alpha1.PodSelector{
		Mode: v1alpha1.AllMode,
		Selector: v1alpha1.PodSelectorSpec{
			GenericSelectorSpec: v1alpha1.GenericSelectorSpec{Namespaces: []string{f.Namespace}},
			Pods:                map[string][]string{f.Namespace: f.Pods},
		},
	}
	containers := v1alpha1.ContainerSelector{PodSelector: pods}
	if f.Container != "" {
		containers.ContainerNames = []string{f.Container}
	}
	lasting := outlast.String()
	switch {
	case f.isOfNetwork():
		return f.networkChaos(meta, pods)
	case f.isStress():
		return f.stressChaos(meta, containers)
	case f.Action == TimeOffset:
		return &v1alpha1.TimeChaos{
			TypeMeta: f.typeMeta(v1alpha1.KindTimeChaos), ObjectMeta: meta,
			Spec: v1alpha1.TimeChaosSpec{
				ContainerSelector: containers, TimeOffset: timeOffset, ClockIds: []string{"CLOCK_REALTIME"}, Duration: &lasting,
			},
		}
	}
	chaos := &v1alpha1.PodChaos{
		TypeMeta: f.typeMeta(v1alpha1.KindPodChaos), ObjectMeta: meta,
		Spec: v1alpha1.PodChaosSpec{ContainerSelector: containers, Action: v1alpha1.PodChaosAction(f.Action)},
	}
	if f.Action == PodFailure {
		chaos.Spec.Duration = &lasting
	}
	return chaos
}

func (f Fault) typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind}
}

func (f Fault) networkChaos(meta metav1.ObjectMeta, pods v1alpha1.PodSelector) *v1alpha1.NetworkChaos {
	lasting := outlast.String()
	chaos := &v1alpha1.NetworkChaos{
		TypeMeta: f.typeMeta(v1alpha1.KindNetworkChaos), ObjectMeta: meta,
		Spec: v1alpha1.NetworkChaosSpec{
			PodSelector: pods, Direction: v1alpha1.To, Duration: &lasting, ExternalTargets: f.Addresses,
		},
	}
	switch f.Action {
	case NetworkDelay:
		chaos.Spec.Action = v1alpha1.DelayAction
		chaos.Spec.Delay = &v1alpha1.DelaySpec{Latency: networkDelay, Jitter: "0ms", Correlation: "0"}
	case NetworkLoss:
		chaos.Spec.Action = v1alpha1.LossAction
		chaos.Spec.Loss = &v1alpha1.LossSpec{Loss: networkLoss, Correlation: "0"}
	default:
		chaos.Spec.Action = v1alpha1.PartitionAction
		chaos.Spec.PartitionBehavior = v1alpha1.DropPartitionBehavior
		chaos.Spec.Direction = v1alpha1.Both
	}
	return chaos
}

func (f Fault) stressChaos(meta metav1.ObjectMeta, containers v1alpha1.ContainerSelector) *v1alpha1.StressChaos {
	lasting := outlast.String()
	chaos := &v1alpha1.StressChaos{
		TypeMeta: f.typeMeta(v1alpha1.KindStressChaos), ObjectMeta: meta,
		Spec: v1alpha1.StressChaosSpec{ContainerSelector: containers, Duration: &lasting, Stressors: &v1alpha1.Stressors{}},
	}
	if f.Action == StressMemory {
		chaos.Spec.Stressors.MemoryStressor = &v1alpha1.MemoryStressor{Stressor: v1alpha1.Stressor{Workers: 1}, Size: stressMemory}
		return chaos
	}
	load := stressLoad
	chaos.Spec.Stressors.CPUStressor = &v1alpha1.CPUStressor{Stressor: v1alpha1.Stressor{Workers: stressCores}, Load: &load}
	return chaos
}
