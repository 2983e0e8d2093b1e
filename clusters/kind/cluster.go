package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/kind/nodeimage"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

const (
	// WorkersDefault is how many workers there are if nobody says.
	WorkersDefault = 3
	// startTimeout bounds a start, on a machine that is busy with other things.
	startTimeout = 5 * time.Minute
	pollInterval = 200 * time.Millisecond
	// abortInterval is how often the nodes of an unwanted start are removed,
	// until kind has given up.
	abortInterval = time.Second
	// networkVariable is how kind is told of a network.
	networkVariable = "KIND_EXPERIMENTAL_DOCKER_NETWORK"
)

// Options say what cluster to start.
type Options struct {
	RunID   string     // letters, digits, '.', '_' and '-'; one running cluster each
	Group   danm.Group // whose CRDs are installed
	Workers int        // WorkersDefault if 0
	// Image is the node image. If empty, one is found, pulled or built.
	Image string
	// CNI is whose write order DANM's plugin has. If empty, there is no such
	// plugin, and annotations of pods mean nothing.
	CNI danmcni.Variant
	// DefaultDetection leaves it to Kubernetes' own settings when a node counts
	// as dead: after about 50 seconds, and its pods five minutes later.
	DefaultDetection bool
	// Recorder receives what the audit log and DANM's plugins say; may be nil.
	Recorder history.Recorder
	// Progress is told of builds and of the start, for people; may be nil.
	Progress io.Writer
	// KeepLogs is a folder for logs. If empty, they go with the cluster.
	KeepLogs string
}

// Cluster is a running kind cluster.
type Cluster struct {
	options  Options
	data     journalData
	journal  string
	logs     string
	log      *logger
	logFile  *os.File
	programs map[string]string // of ours, by name
	provider *kindcluster.Provider
	client   kubernetes.Interface // as the harness, from when the API answers
	nodes    []node               // fixed once the cluster is started

	restoring   sync.Mutex
	mu          sync.Mutex
	tail        *controlplane.AuditTail   // nil without a recorder
	attachments *attachments              // the same
	cleaners    []clusters.CleanerProcess // children of ours
	deployments []*deployment
	closed      bool
}

var (
	_ clusters.Cluster      = (*Cluster)(nil)
	_ clusters.NodeAdder    = (*Cluster)(nil)
	_ clusters.NodeFailer   = (*Cluster)(nil)
	_ clusters.WorkerLister = (*Cluster)(nil)
	_ clusters.Auditor      = (*Cluster)(nil)
)

// Start returns when all nodes are Ready and DANM's CRDs are served. On a host
// that cannot run a cluster it makes nothing and returns an UnfitHostError. If
// it fails, it leaves nothing behind.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Workers == 0 {
		o.Workers = WorkersDefault
	}
	if _, err := danm.ParseGroup(string(o.Group)); err != nil {
		return nil, fmt.Errorf("starting a kind cluster: %w", err)
	}
	h, err := examineHost(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting a kind cluster: %w", err)
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("starting a kind cluster: %w", err)
	}
	if o.Image, err = nodeimage.Obtain(ctx, nodeimage.Options{Image: o.Image, CgroupV1: h.cgroupV1, Progress: o.Progress}); err != nil {
		return nil, fmt.Errorf("starting a kind cluster: %w", err)
	}
	c, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("starting a kind cluster: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	began := time.Now()
	if err := c.start(ctx, h); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a kind cluster: %w", err), c.Close(context.WithoutCancel(ctx)))
	}
	fmt.Fprintf(o.Progress, "kind cluster %s with %d workers is ready after %.1f s\n", c.data.Cluster, o.Workers, time.Since(began).Seconds())
	return c, nil
}

// open writes the journal before anything else.
func open(o Options) (*Cluster, error) {
	data, err := newJournalData(o.RunID)
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: o, data: data, logs: o.KeepLogs}
	if c.logs == "" {
		c.logs = data.Folder
	}
	c.journal, err = writeJournal(data)
	return c, err
}

func (c *Cluster) start(ctx context.Context, h host) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	s := settings{
		name: c.data.Cluster, image: c.options.Image, workers: c.options.Workers,
		auditFolder: c.auditFolder(), attachments: c.attachmentsFolder(), cgroupV1: h.cgroupV1, defaultDetection: c.options.DefaultDetection,
	}
	if h.lacksCapability {
		s.wrapper = c.programs[wrapperName]
	}
	if err := createNetwork(ctx, c.data); err != nil {
		return err
	}
	if err := c.create(ctx, s); err != nil {
		return err
	}
	return c.furnish(ctx)
}

// furnish makes the bare cluster one that DANM's workloads run on.
func (c *Cluster) furnish(ctx context.Context) error {
	config, err := c.RESTConfig(clusters.UserHarness)
	if err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := c.writeCleanerKubeconfig(); err != nil {
		return err
	}
	if err := c.dressNodes(ctx); err != nil {
		return err
	}
	if err := controlplane.InstallCRDs(ctx, objects, c.options.Group); err != nil {
		return err
	}
	return awaitReady(ctx, c.client)
}

// prepare makes the folder with all files, our own programs among them, and
// begins to follow what the nodes will write down.
func (c *Cluster) prepare(ctx context.Context) (err error) {
	if err := os.Mkdir(c.data.Folder, 0o700); err != nil {
		return fmt.Errorf("making the run's folder: %w", err)
	}
	for _, folder := range []string{c.auditFolder(), c.attachmentsFolder(), c.logs} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("making the run's folder: %w", err)
		}
	}
	if c.logFile, err = os.Create(filepath.Join(c.logs, "kind.log")); err != nil {
		return fmt.Errorf("making kind's log: %w", err)
	}
	c.log = &logger{out: c.logFile}
	if err := c.prepareAudit(); err != nil {
		return err
	}
	if c.options.Recorder != nil {
		c.attachments = followAttachments(c.attachmentsFolder(), c.options.Recorder)
	}
	if c.programs, err = nodeimage.BuildOwn(ctx, filepath.Join(c.data.Folder, "bin")); err != nil {
		return err
	}
	return nodeimage.WriteWorkloadArchive(c.workloadArchive(), c.programs["pause"])
}

// prepareAudit writes the policy and makes the log, so that it can be followed
// before the first request, and read by us whoever the API server runs as.
func (c *Cluster) prepareAudit() error {
	policy, err := json.Marshal(controlplane.AuditPolicy())
	if err != nil {
		return fmt.Errorf("encoding the audit policy: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.auditFolder(), auditPolicyFile), policy, 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	log := filepath.Join(c.auditFolder(), auditLogFile)
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		return fmt.Errorf("making the audit log: %w", err)
	}
	if c.options.Recorder == nil {
		return nil
	}
	c.tail, err = controlplane.FollowAudit(log, c.options.Recorder)
	return err
}

// environment guards the variable by which kind is told of a network.
var environment sync.Mutex

// create lets kind make the nodes. kind cannot be told to stop, but it gives up
// when its nodes are taken away.
func (c *Cluster) create(ctx context.Context, s settings) error {
	config, err := clusterConfig(s)
	if err != nil {
		return err
	}
	environment.Lock()
	defer environment.Unlock()
	restore, err := setVariable(networkVariable, c.data.Cluster)
	if err != nil {
		return fmt.Errorf("naming the network: %w", err)
	}
	defer restore()
	c.provider = kindcluster.NewProvider(kindcluster.ProviderWithDocker(), kindcluster.ProviderWithLogger(c.log))
	created := make(chan error, 1)
	go func() {
		created <- c.provider.Create(c.data.Cluster,
			kindcluster.CreateWithV1Alpha4Config(config), kindcluster.CreateWithKubeconfigPath(c.kubeconfig()),
			kindcluster.CreateWithRetain(true)) // Close removes, after the logs are kept
	}()
	select {
	case err = <-created:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), c.abort(context.WithoutCancel(ctx), created))
	}
	if err != nil {
		c.log.logFailure(err)
		c.keepNodeLogs()
		return fmt.Errorf("creating the nodes: %w (see kind.log with KeepLogs)", err)
	}
	return nil
}

// setVariable returns what gives the variable its value back.
func setVariable(name, value string) (restore func(), err error) {
	old, had := os.LookupEnv(name)
	if err := os.Setenv(name, value); err != nil {
		return nil, err
	}
	return func() {
		if had {
			_ = os.Setenv(name, old) // it could be set before
			return
		}
		_ = os.Unsetenv(name)
	}, nil
}

// abort returns when kind has stopped, so that it makes nothing after us.
func (c *Cluster) abort(ctx context.Context, created <-chan error) error {
	ticker := time.NewTicker(abortInterval)
	defer ticker.Stop()
	for {
		if err := removeContainers(ctx, c.data, io.Discard); err != nil {
			return err
		}
		select {
		case <-created:
			return nil
		case <-ticker.C:
		}
	}
}

// keepNodeLogs saves what nodes say before they go, if logs are to be kept.
func (c *Cluster) keepNodeLogs() {
	if c.options.KeepLogs == "" {
		return
	}
	if err := c.provider.CollectLogs(c.data.Cluster, filepath.Join(c.logs, "nodes")); err != nil {
		c.log.Warnf("keeping the logs of the nodes: %v", err)
	}
}

// Name implements clusters.Cluster.
func (c *Cluster) Name() string { return "kind" }

// DrainAudit implements clusters.Auditor. What plugins wrote down until now is
// recorded as well.
func (c *Cluster) DrainAudit(ctx context.Context) error {
	c.mu.Lock()
	tail, attachments := c.tail, c.attachments
	c.mu.Unlock()
	if tail == nil {
		return nil
	}
	return errors.Join(tail.Drain(ctx), attachments.drain())
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig() }

// Leave ends everything of the cluster that runs in this program or as its
// child, and leaves the cluster itself. Clean removes it when this program has
// ended.
func (c *Cluster) Leave(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	err := errors.Join(c.stopCleaners(ctx), c.closeFiles(ctx))
	c.closed = true
	if err != nil {
		return fmt.Errorf("leaving the kind cluster: %w", err)
	}
	return nil
}

// closeFiles records what is left in the logs and closes them. The caller holds
// the lock.
func (c *Cluster) closeFiles(ctx context.Context) error {
	var errs []error
	if c.tail != nil {
		errs = append(errs, c.tail.Close(ctx))
		c.tail = nil
	}
	if c.attachments != nil {
		errs = append(errs, c.attachments.close())
		c.attachments = nil
	}
	if c.logFile != nil {
		errs = append(errs, c.logFile.Close())
		c.logFile = nil
	}
	return errors.Join(errs...)
}

// Close implements clusters.Cluster. After an error it may be called again.
func (c *Cluster) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // half removed is worse than late
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if err := errors.Join(c.stopCleaners(ctx), removeContainers(ctx, c.data, io.Discard)); err != nil {
		return fmt.Errorf("closing the kind cluster: %w", err)
	}
	// The logs are complete now that the API server is gone.
	if err := errors.Join(c.closeFiles(ctx), remove(ctx, c.data, io.Discard)); err != nil {
		return fmt.Errorf("closing the kind cluster: %w", err)
	}
	if err := controlplane.RemoveJournal(c.journal); err != nil {
		return fmt.Errorf("closing the kind cluster: %w", err)
	}
	c.closed = true
	return nil
}

func (c *Cluster) kubeconfig() string        { return filepath.Join(c.data.Folder, "kubeconfig") }
func (c *Cluster) auditFolder() string       { return filepath.Join(c.data.Folder, "audit") }
func (c *Cluster) attachmentsFolder() string { return filepath.Join(c.data.Folder, "attachments") }
func (c *Cluster) workloadArchive() string   { return filepath.Join(c.data.Folder, "pause.tar") }

// poll waits until the condition holds. An error of the condition ends it, as
// does the end of the context.
func poll(ctx context.Context, condition func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if ok, err := condition(ctx); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
