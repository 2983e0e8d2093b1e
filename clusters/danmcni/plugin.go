package danmcni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Variant says whose write order is performed.
type Variant string

// Danm43 has the order of DANM 4.3 with its weaknesses: the bit is cleared
// before the endpoint is deleted, by address, without a look at who owns it,
// again after every conflict. Careful compares before it writes.
const (
	Danm43  Variant = "danm-4.3"
	Careful Variant = "careful"
)

// Variants lists every variant, the default first.
func Variants() []Variant { return []Variant{Danm43, Careful} }

// ParseVariant returns the variant named s, or an error that lists the known
// ones.
func ParseVariant(s string) (Variant, error) {
	for _, v := range Variants() {
		if s == string(v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("unknown CNI variant %q: use %s or %s", s, Danm43, Careful)
}

// Point names a gap between two steps of ADD or DEL.
type Point string

// The gaps, in the order in which ADD and then DEL pass them. Those of
// reserving and clearing come after the network was read and before it is
// written, so a long one makes a conflict.
const (
	BeforeReserve           Point = "before-reserve"
	BetweenReserveAndCreate Point = "between-reserve-and-create"
	AfterCreate             Point = "after-create"
	BeforeClear             Point = "before-clear"
	BetweenClearAndDelete   Point = "between-clear-and-delete" // Careful: between delete and clear
)

// Limits of DANM, and ours where DANM has none.
const (
	// addDuration is the time that DANM gives all interfaces of a pod.
	addDuration = 30 * time.Second
	// conflictsMax bounds the loop that DANM repeats for ever. A conflict
	// means that somebody else got on, so no cluster of ours comes near it.
	conflictsMax = 1000
	// DEL lists the endpoints up to ten times before it gives up.
	listAttemptsMax = 10
	listRetryDelay  = 100 * time.Millisecond
)

// networkType is what DANM writes where a network states no type.
const networkType = "ipvlan"

// Config says how a plugin works. Client, Pods, Host and NewID are required.
type Config struct {
	Client  *danm.Client
	Pods    typedcorev1.PodsGetter
	Variant Variant // Danm43 if empty
	// Host is written into the endpoints, as DANM does with the host name.
	Host string
	// NewID returns a UUID for an endpoint. It is called once for each
	// interface in the order of the annotation, from the goroutine of Add.
	NewID func() string
	// Delay is called in the gaps between steps, concurrently for the
	// interfaces of a pod. An error ends the plugin at that point as if its
	// process had been killed: nothing is rolled back. nil means no delays.
	Delay func(ctx context.Context, p Point) error
	// Requests reads what a pod asks for; Requests of this package if nil.
	Requests func(danm.Group, *corev1.Pod) ([]danm.InterfaceRequest, error)
	// Logger gets the errors that DANM swallows, at V(1).
	Logger logr.Logger
}

// Plugin performs ADD and DEL. It keeps no state between calls, as CNI has
// it, and is safe for concurrent use if NewID and Delay are.
type Plugin struct{ cfg Config }

// New returns a plugin.
func New(cfg Config) *Plugin {
	if cfg.Variant == "" {
		cfg.Variant = Danm43
	}
	if cfg.Requests == nil {
		cfg.Requests = danm.Requests
	}
	if cfg.Delay == nil {
		cfg.Delay = func(ctx context.Context, _ Point) error { return ctx.Err() }
	}
	return &Plugin{cfg: cfg}
}

// Request is what a container runtime says at ADD.
type Request struct {
	Namespace   string
	Pod         string
	ContainerID string // of the sandbox
	// PodUID is compared by Careful if it is set. DANM 4.3 reads the pod by
	// name and believes whatever UID it finds, so Danm43 ignores it.
	PodUID types.UID
	// Netns is written into the endpoints. Empty means where a runtime that
	// names network namespaces by container ID puts it.
	Netns string
}

// Interface is one interface that Add made.
type Interface struct {
	Name        string
	Endpoint    string // object name, in the pod's namespace
	EndpointUID types.UID
	Network     danm.NetworkRef
	Addresses   []netip.Addr // IPv4 first
	// Prefixes are the Addresses with the prefix length of the network.
	Prefixes []netip.Prefix
	// Routes are those of the network, both families: target to gateway.
	Routes map[string]string
	// HostDevice is the node's interface that the network names, if any.
	HostDevice string
}

// killedError says that Delay ended the plugin, so that nothing is rolled back.
type killedError struct{ cause error }

func (e *killedError) Error() string { return "CNI plugin ended between two steps: " + e.cause.Error() }
func (e *killedError) Unwrap() error { return e.cause }

func isKilled(err error) bool {
	var killed *killedError
	return errors.As(err, &killed)
}

func (p *Plugin) pause(ctx context.Context, at Point) error {
	err := p.cfg.Delay(ctx, at)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err
	default:
		return &killedError{cause: err}
	}
}

// network is one as read: the object for writing it back whole, and what it
// says about addresses.
type network struct {
	object *unstructured.Unstructured
	parsed *danm.Network
}

func (p *Plugin) readNetwork(ctx context.Context, ref danm.NetworkRef) (network, error) {
	u, err := p.networks(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return network{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	parsed, err := danm.ToNetwork(u)
	if err != nil {
		return network{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	return network{object: u, parsed: parsed}, nil
}

func (p *Plugin) networks(ref danm.NetworkRef) dynamic.ResourceInterface {
	return p.cfg.Client.Networks(ref.Kind, ref.Namespace)
}

// isChanged tells whether a write was refused because the object is no longer
// the version it was based on. Only a patch says so in two ways; a full update
// that is Invalid would be so for ever.
func (p *Plugin) isChanged(err error) bool {
	if p.cfg.Variant == Careful {
		return danm.IsChanged(err)
	}
	return apierrors.IsConflict(err)
}

// write stores changed bitmaps. Danm43 puts the whole object, Careful patches
// the bitmaps alone; note puts the changes into a copy of the object.
func (p *Plugin) write(ctx context.Context, n network, changes []danm.AllocChange, note func(*unstructured.Unstructured) error) error {
	if p.cfg.Variant == Careful {
		_, err := p.cfg.Client.PatchAlloc(ctx, n.parsed, changes)
		return err
	}
	u := n.object.DeepCopy()
	if err := note(u); err != nil {
		return err
	}
	_, err := p.networks(n.parsed.Ref()).Update(ctx, u, metav1.UpdateOptions{})
	return err
}
