package nemesis

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

func uidOf(pod clusters.CleanerPod) types.UID { return types.UID(pod.UID) }

// MeshFault is one fault of Chaos Mesh: what, on whom, under which name.
type MeshFault struct {
	Name   string            // of the object
	Meta   metav1.ObjectMeta // namespace, labels and annotations of the object
	Action chaosmesh.Action
	// Pods are the victims, of one namespace.
	Namespace string
	Pods      []string
	Container string
}

// MeshInject has Chaos Mesh do it. What it recorded is in the note. The result
// is to be healed even if the outcome is not OK, unless it is nil.
func (n *Nemesis) MeshInject(ctx context.Context, d dynamic.Interface, f MeshFault) (*chaosmesh.Injected, Outcome) {
	served, err := chaosmesh.IsServed(n.core.Discovery())
	if err != nil {
		return nil, Failed(err)
	}
	if !served {
		return nil, n.cannot("run Chaos Mesh, which is not installed")
	}
	fault := chaosmesh.Fault{Action: f.Action, Namespace: f.Namespace, Pods: f.Pods, Container: f.Container}
	if fault.Addresses, err = chaosmesh.APIServerAddresses(ctx, n.core); err != nil {
		return nil, Failed(err)
	}
	injected, events, err := chaosmesh.New(d, f.Meta).Inject(ctx, f.Name, fault)
	switch {
	case err == nil:
		return injected, OK(told(events))
	case injected == nil:
		return nil, Failed(err)
	default:
		return injected, Outcome{Type: Unclear(err).Type, Note: told(events), Err: err}
	}
}

// MeshHeal has it undone.
func (n *Nemesis) MeshHeal(ctx context.Context, injected *chaosmesh.Injected) Outcome {
	events, err := injected.Heal(ctx)
	if err != nil {
		return Outcome{Type: Unclear(err).Type, Note: told(events), Err: err}
	}
	return OK(told(events))
}

func told(events []chaosmesh.Event) string {
	texts := make([]string, len(events))
	for i, e := range events {
		texts[i] = e.String()
	}
	return "Chaos Mesh: " + strings.Join(texts, "; ")
}
