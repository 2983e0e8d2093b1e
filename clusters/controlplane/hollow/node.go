package hollow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// Rhythm of a node. The Lease is renewed about five times within the grace
// period of 3 s that the controller-manager of a test cluster has.
const (
	leaseRenewInterval   = 600 * time.Millisecond
	statusCheckInterval  = 3 * time.Second
	statusReportInterval = 5 * time.Minute
	requestDuration      = 5 * time.Second // limit of a request for the node itself
	registerRetryDelay   = 200 * time.Millisecond
)

// How long things take on a node.
const (
	stepMin, stepMax           = time.Millisecond, 5 * time.Millisecond
	slowStepMin, slowStepMax   = 10 * time.Millisecond, 50 * time.Millisecond
	slowStepOneIn              = 20
	sandboxMin, sandboxMax     = 20 * time.Millisecond, 60 * time.Millisecond // before ADD
	containerMin, containerMax = 30 * time.Millisecond, 90 * time.Millisecond // after ADD
	lateDelMin, lateDelMax     = 50 * time.Millisecond, 500 * time.Millisecond
	killMax                    = 6 * time.Second
)

// A failed step is repeated after a delay that doubles.
const retryDelayMin, retryDelayMax = 200 * time.Millisecond, 5 * time.Second

// watchDelayMax bounds the time until a broken pod watch is tried again.
const watchDelayMin, watchDelayMax = 100 * time.Millisecond, 2 * time.Second

// Requests per second that one node may send to the core API, where the REST
// config does not say. Those of the CNI plugin have no limit of the node's:
// every CNI call is a process of its own.
const coreQPS, coreBurst, pluginQPS = 50, 100, -1

// Config says what a node is and whom it tells what it does.
type Config struct {
	Name   string
	Labels map[string]string
	// REST acts as the node's own user.
	REST    *rest.Config
	Group   danm.Group
	Variant danmcni.Variant
	// Seed draws delays, container IDs and endpoint names, with the name.
	Seed     uint64
	Recorder history.Recorder // may be nil
	Logger   logr.Logger
}

// Node is one hollow node. Its methods are safe for concurrent use.
type Node struct {
	cfg    Config
	core   kubernetes.Interface
	plugin *danmcni.Plugin
	dice   *dice

	mu        sync.Mutex
	power     *power              // nil while the node is off
	sandboxes map[string]*sandbox // by ID; what the disk remembers over a power loss
	sequence  int                 // of the newest sandbox
}

// sandbox is a pod's sandbox as the container runtime knows it. It is there
// before CNI ADD begins and until CNI DEL succeeded.
type sandbox struct {
	id        string
	sequence  int // order of creation
	namespace string
	pod       string
	uid       types.UID
	usesDanm  bool
	attached  bool // ADD succeeded and was recorded
	live      bool // attached, and neither lost nor detaching
}

// Start registers the node and returns when its Node object exists. ctx bounds
// the registration only; the node runs until Stop or Fail.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	core, client, err := clientsFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("starting node %s: %w", cfg.Name, err)
	}
	n := &Node{cfg: cfg, core: core, dice: newDice(cfg.Seed, cfg.Name), sandboxes: map[string]*sandbox{}}
	n.plugin = danmcni.New(danmcni.Config{
		Client: client, Pods: core.CoreV1(), Variant: cfg.Variant, Host: cfg.Name, NewID: n.dice.uuid,
		Delay: func(ctx context.Context, _ danmcni.Point) error {
			return sleep(ctx, n.dice.stepDelay())
		},
		Logger: cfg.Logger,
	})
	if _, err := n.boot(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// clientsFor makes the clients; core types go as protobuf, which costs a test
// cluster about half of what JSON does.
func clientsFor(cfg Config) (kubernetes.Interface, *danm.Client, error) {
	rc := rest.CopyConfig(cfg.REST)
	isUnlimited := rc.QPS == 0 && rc.RateLimiter == nil
	if isUnlimited {
		rc.QPS = pluginQPS
	}
	d, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, nil, fmt.Errorf("making dynamic client: %w", err)
	}
	if isUnlimited {
		rc.QPS, rc.Burst = coreQPS, coreBurst
	}
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	core, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, nil, fmt.Errorf("making core client: %w", err)
	}
	return core, danm.NewClient(d, cfg.Group), nil
}

// power is the time from one boot to its end.
type power struct {
	node   *Node
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup // all goroutines of the node

	// The rest is guarded by node.mu.
	isOff     bool
	workers   map[types.UID]*worker
	leftovers map[string]bool // sandboxes of an earlier boot that need a DEL
	isClean   chan struct{}   // closed when there is none
}

// boot powers the node on, registers it and starts its loops.
func (n *Node) boot(ctx context.Context) (*power, error) {
	p, err := n.powerOn()
	if err != nil {
		return nil, err
	}
	defer p.group.Done()
	// The registration ends with the caller's context and with the power.
	registering, cancel := context.WithCancel(p.ctx)
	defer context.AfterFunc(ctx, cancel)()
	err = p.register(registering)
	cancel()
	if err != nil {
		n.cut(p, false)
		return nil, fmt.Errorf("registering node %s: %w", n.cfg.Name, errors.Join(err, context.Cause(ctx)))
	}
	p.group.Go(p.renewLease)
	p.group.Go(p.refreshStatus)
	p.group.Go(p.watchPods)
	return p, nil
}

// powerOn returns a power whose group counts the boot itself.
func (n *Node) powerOn() (*power, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.power != nil {
		return nil, fmt.Errorf("node %s is already running", n.cfg.Name)
	}
	p := &power{
		node: n, workers: map[types.UID]*worker{},
		leftovers: map[string]bool{}, isClean: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(klog.NewContext(context.Background(), n.cfg.Logger))
	for id := range n.sandboxes {
		p.leftovers[id] = true
	}
	if len(p.leftovers) == 0 {
		close(p.isClean)
	}
	p.group.Add(1)
	n.power = p
	return p, nil
}

// Fail is a power loss: everything stops at once, in the middle of whatever it
// was doing, and requests under way may or may not take effect. The attachments
// that were live are recorded as lost. It returns when all goroutines ended.
func (n *Node) Fail() { n.powerOff(true) }

// Stop ends the node and leaves its API objects as they are. It records
// nothing, so it is for the end of a run, when nobody looks any more.
func (n *Node) Stop() { n.powerOff(false) }

func (n *Node) powerOff(areLost bool) {
	n.mu.Lock()
	p := n.power
	n.mu.Unlock()
	if p == nil {
		return
	}
	n.cut(p, areLost)
	p.group.Wait()
}

// cut takes the power away. Everything that records asks for isOff under the
// same lock, so nothing can be recorded as attached afterwards.
func (n *Node) cut(p *power, areLost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.cancel()
	if p.isOff {
		return
	}
	p.isOff, n.power = true, nil
	if !areLost {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(n.sandboxes)) {
		if sb := n.sandboxes[id]; sb.live {
			sb.live = false
			n.record(history.Lost, sb, nil)
		}
	}
}

// Restore powers the node on again. It returns when every sandbox that the
// node had at the power loss got its CNI DEL, late as it is; pods that are
// still bound to the node then get a new sandbox, and other pods stay gone. The
// error says what kept the node from getting there; it runs on unless it could
// not register.
func (n *Node) Restore(ctx context.Context) error {
	p, err := n.boot(ctx)
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	select {
	case <-p.isClean:
		return nil
	case <-p.ctx.Done():
		return fmt.Errorf("restoring node %s: it was powered off again", n.cfg.Name)
	case <-ctx.Done():
		return fmt.Errorf("restoring node %s: waiting for the late CNI DELs: %w", n.cfg.Name, context.Cause(ctx))
	}
}

// record writes ground truth. The caller holds n.mu, which gives the records
// of a node the order in which things happened.
func (n *Node) record(event history.AttachmentEvent, sb *sandbox, made []danmcni.Interface) {
	if n.cfg.Recorder == nil {
		return
	}
	a := &history.Attachment{
		Event: event, ID: sb.id, Node: n.cfg.Name,
		Namespace: sb.namespace, Pod: sb.pod, PodUID: string(sb.uid), Interfaces: danmcni.Attached(made),
	}
	n.cfg.Recorder.Record(history.Record{Attachment: a})
}

// sleep waits, or returns early with the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
