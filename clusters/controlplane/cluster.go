package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane/hollow"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

const (
	// startAttemptsMax is how often a start is tried again with other ports
	// when somebody took one of ours.
	startAttemptsMax = 3
	// startTimeout bounds a start, on a machine that is busy with other things.
	startTimeout = 90 * time.Second
	// An API server takes up to a minute to end politely, for clients that
	// nobody has here. The others end at once.
	programStopGrace   = time.Second
	apiserverStopGrace = 100 * time.Millisecond
)

// Options say what cluster to start.
type Options struct {
	RunID   string          // letters, digits, '.', '_' and '-'; one running cluster each
	Group   danm.Group      // whose CRDs are installed
	Variant danmcni.Variant // whose write order the nodes have; danmcni.Danm43 if empty
	Seed    uint64          // of the nodes' delays
	// Controllers of Kubernetes run besides those that scenarios need,
	// "job-controller", for example.
	Controllers []string
	// Recorder receives what the audit log and the nodes say; may be nil.
	Recorder history.Recorder
	// Progress is told of builds and of the start, for people; may be nil.
	Progress io.Writer
	// KeepLogs is a folder for the logs of all programs. If empty, they are in
	// the temporary folder and go with it.
	KeepLogs string
}

// Cluster is a running control plane with its nodes and cleaners.
type Cluster struct {
	options  Options
	programs programs
	journal  *journal
	files    layout
	ports    ports
	access   access
	tail     *auditTail // nil without a recorder
	nodeLog  logr.Logger
	nodeFile io.Closer

	mu       sync.Mutex
	running  []*process // the control plane, in the order of start
	cleaners []*process
	nodes    map[string]*hollow.Node
	closed   bool
}

var (
	_ clusters.Cluster       = (*Cluster)(nil)
	_ clusters.NodeAdder     = (*Cluster)(nil)
	_ clusters.NodeFailer    = (*Cluster)(nil)
	_ clusters.CleanerRunner = (*Cluster)(nil)
	_ clusters.ResourceUser  = (*Cluster)(nil)
	_ clusters.Auditor       = (*Cluster)(nil)
)

// Start builds the programs if they are not there yet, starts them and returns
// when the API server, the controller-manager and the scheduler are ready and
// DANM's CRDs are served. If it fails, it leaves nothing behind.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Variant == "" {
		o.Variant = danmcni.Danm43
	}
	if _, err := danm.ParseGroup(string(o.Group)); err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	found, err := obtainPrograms(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := startOnce(ctx, o, found)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == startAttemptsMax {
			return nil, fmt.Errorf("starting the control plane: %w", err)
		}
		fmt.Fprintln(o.Progress, "a port was taken in between; starting again with others")
	}
}

func startOnce(ctx context.Context, o Options, found programs) (*Cluster, error) {
	j, err := openJournal(o.RunID)
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: o, programs: found, journal: j, nodes: map[string]*hollow.Node{}}
	startCtx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	began := time.Now()
	if err := c.start(startCtx); err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	fmt.Fprintf(o.Progress, "control plane is ready after %.1f s\n", time.Since(began).Seconds())
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	etcd, err := c.startProgram(etcdProgram, etcdArguments(c.files, c.ports), etcdMemory)
	if err != nil {
		return err
	}
	if err := waitReady(ctx, etcd, httpProbe(httpAddress(c.ports.etcdClient)+"/health", access{}, "")); err != nil {
		return err
	}
	apiserver, err := c.startProgram(apiserverProgram, apiserverArguments(c.files, c.ports), apiserverMemory)
	if err != nil {
		return err
	}
	if err := waitReady(ctx, apiserver, httpProbe(c.access.server+"/readyz", c.access, clusters.UserHarness)); err != nil {
		return err
	}
	return c.startControllers(ctx)
}

// startControllers starts what needs the API server. The CRDs are installed
// while the two programs come up.
func (c *Cluster) startControllers(ctx context.Context) error {
	manager, err := c.startProgram(controllerManagerProgram, controllerManagerArguments(c.files, c.ports, c.options.Controllers), controllerManagerMemory)
	if err != nil {
		return err
	}
	scheduler, err := c.startProgram(schedulerProgram, schedulerArguments(c.files, c.ports), schedulerMemory)
	if err != nil {
		return err
	}
	config, err := c.RESTConfig(clusters.UserHarness)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := installCRDs(ctx, client, c.options.Group); err != nil {
		return errors.Join(err, c.Failure())
	}
	if err := waitReady(ctx, manager, c.secureProbe(c.ports.controllerManager, "/healthz")); err != nil {
		return err
	}
	if err := waitReady(ctx, scheduler, c.secureProbe(c.ports.scheduler, "/readyz")); err != nil {
		return err
	}
	return c.Failure()
}

// prepare makes the folder with all files and chooses the ports.
func (c *Cluster) prepare() error {
	folder, err := os.MkdirTemp("", folderPrefix(c.options.RunID)+"*") // as the journal says
	if err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	c.files = layout{folder: folder, logs: c.options.KeepLogs}
	if c.files.logs == "" {
		c.files.logs = folder
	}
	if err := os.MkdirAll(c.files.logs, 0o755); err != nil {
		return fmt.Errorf("making the log folder: %w", err)
	}
	if c.ports, err = choosePorts(); err != nil {
		return err
	}
	if c.access, err = createAccess(c.files, c.ports.apiserver); err != nil {
		return err
	}
	if err := writeSettings(c.files); err != nil {
		return err
	}
	if c.nodeLog, c.nodeFile, err = openNodeLog(c.files.log(nodesLog)); err != nil {
		return err
	}
	if c.options.Recorder != nil {
		c.tail, err = openAuditTail(c.files.auditLog(), c.options.Recorder)
	}
	return err
}

// startProgram starts a part of the control plane. memory is the limit that its
// Go runtime tries to keep.
func (c *Cluster) startProgram(name string, args []string, memory string) (*process, error) {
	p, err := startLogged(command{
		name: name, argv: append([]string{c.programs[name]}, args...),
		env: []string{c.runMark(), "GOMEMLIMIT=" + memory}, dir: c.files.folder, log: c.files.log(name),
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.running = append(c.running, p)
	c.mu.Unlock()
	return p, c.journal.add(name, p.identity)
}

func (c *Cluster) runMark() string { return runVariable + "=" + c.options.RunID }

// Name implements clusters.Cluster.
func (c *Cluster) Name() string { return "controlplane" }

// RESTConfig implements clusters.Cluster. Nodes are impersonated; the audit
// records name them as the writer all the same.
func (c *Cluster) RESTConfig(user string) (*rest.Config, error) { return c.access.restConfig(user) }

// Failure is nil while the whole control plane runs. Otherwise it names the
// program that ended, with the last lines of its log.
func (c *Cluster) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.running {
		if p.hasEnded() {
			return p.endError()
		}
	}
	return nil
}

// DrainAudit implements clusters.Auditor. Every request of which a client had
// the whole answer over HTTP/2 before the call is in the recorder after it.
func (c *Cluster) DrainAudit(ctx context.Context) error {
	c.mu.Lock()
	tail := c.tail
	c.mu.Unlock()
	if tail == nil {
		return nil
	}
	return tail.drain(ctx)
}

// ResidentBytes implements clusters.ResourceUser. It counts whole process
// groups, so a cleaner that is wrapped in a shell does not hide.
func (c *Cluster) ResidentBytes() (int64, error) {
	all, err := listProcesses()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	ours := slices.Concat(c.running, c.cleaners)
	c.mu.Unlock()
	var pages int64
	for _, stat := range all {
		isOurs := func(p *process) bool { return p.PID == stat.group && !p.hasEnded() }
		if slices.ContainsFunc(ours, isOurs) {
			pages += stat.rssPages
		}
	}
	return pages * int64(os.Getpagesize()), nil
}

// Close implements clusters.Cluster. A context that is done makes it quicker,
// not less thorough. After an error it may be called again.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.stopNodes()
	if err := c.stopPrograms(ctx); err != nil {
		return fmt.Errorf("closing the control plane: %w", err)
	}
	var errs []error
	if c.tail != nil {
		// The log is complete now, and reading it to its end takes no network.
		errs = append(errs, c.tail.close(context.WithoutCancel(ctx)))
		c.tail = nil
	}
	if c.nodeFile != nil {
		errs = append(errs, c.nodeFile.Close())
		c.nodeFile = nil
	}
	if c.files.folder != "" {
		errs = append(errs, os.RemoveAll(c.files.folder))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the control plane: %w", err)
	}
	if err := c.journal.remove(); err != nil {
		return fmt.Errorf("closing the control plane: %w", err)
	}
	c.closed = true
	return nil
}

// stopPrograms ends who writes first, so that nobody is left without a server.
func (c *Cluster) stopPrograms(ctx context.Context) error {
	var errs []error
	for _, p := range c.cleaners {
		errs = append(errs, p.stop(ctx, cleanerStopGrace))
	}
	for _, p := range slices.Backward(c.running) {
		grace := programStopGrace
		if p.name == apiserverProgram {
			grace = apiserverStopGrace
		}
		errs = append(errs, p.stop(ctx, grace))
	}
	return errors.Join(errs...)
}
