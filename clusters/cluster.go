package clusters

import (
	"context"
	"io"
	"time"

	"k8s.io/client-go/rest"
)

// Users of a cluster. The audit log names the writer of every change by them.
const (
	UserHarness = "danm-harness"
	UserCleaner = "danm-cleaner"
	// UserDeployedCleaner is a cleaner that runs in pods, as its manifests have it.
	UserDeployedCleaner = "system:serviceaccount:danm-cleaner:danm-cleaner"
	// UserNodePrefix is followed by the node's name. Kubelets and the CNI
	// plugin of a node write as that user.
	UserNodePrefix = "system:node:"
)

// Cluster is a running Kubernetes API with DANM's CRDs installed.
type Cluster interface {
	// Name is the kind of cluster: "controlplane", "sim", "kind", "existing".
	Name() string
	// RESTConfig returns access as one of the users above. The caller may
	// change the copy it gets.
	RESTConfig(user string) (*rest.Config, error)
	// Close ends everything that the cluster started and removes what it
	// left. It may be called more than once. The error says what remains.
	Close(ctx context.Context) error
}

// Node is what a scenario asks for.
type Node struct {
	Name   string
	Labels map[string]string
}

// NodeAdder is a cluster that can grow and shrink.
type NodeAdder interface {
	// AddNode returns when the node is registered; it becomes Ready soon after.
	AddNode(ctx context.Context, n Node) error
	// RemoveNode stops the node if it runs and deletes its Node object.
	RemoveNode(ctx context.Context, name string) error
}

// WorkerLister is a cluster that has the workers it was made with and no
// others. AddNode takes one of them by its name and switches it on if need be;
// a worker that was removed is back, as a new Node, when it is added again.
type WorkerLister interface {
	// Workers returns the names of the nodes that may be failed, in order.
	Workers() []string
}

// NodeFailer is a cluster that can cut a node's power and give it back.
type NodeFailer interface {
	// FailNode stops everything on the node at once, in the middle of whatever
	// it was doing, as a power loss would.
	FailNode(ctx context.Context, name string) error
	// RestoreNode powers the node on; it cleans up as a kubelet would.
	RestoreNode(ctx context.Context, name string) error
}

// CleanerSpec says which program to test.
type CleanerSpec struct {
	// Argv is the program and its arguments. "{{kubeconfig}}" in any of them
	// is replaced by the path of a kubeconfig of UserCleaner.
	Argv []string
	// IsDeployed has a cluster that runs pods run this project's cleaner as
	// users deploy it. Argv is then the program that goes into the image, and
	// what is added to the arguments that the manifests give it.
	IsDeployed bool
	// Logs receives what the program prints.
	Logs io.Writer
}

// User is whom the audit log names as the writer of what the cleaner writes.
func (s CleanerSpec) User() string {
	if s.IsDeployed {
		return UserDeployedCleaner
	}
	return UserCleaner
}

// CleanerRunner is a cluster that can run a cleaner beside the harness.
type CleanerRunner interface {
	// StartCleaner returns once the program runs. It does not wait for it to
	// be ready to do anything.
	StartCleaner(ctx context.Context, s CleanerSpec) (CleanerProcess, error)
}

// CleanerProcess is a cleaner under test.
type CleanerProcess interface {
	// Exited is closed when the program has ended, by itself or not.
	Exited() <-chan struct{}
	// ExitError says how it ended; nil while it runs or after exit code 0.
	ExitError() error
	// Stop ends it, politely first, and waits. It is safe to call twice.
	Stop(ctx context.Context) error
	// Kill ends it at once (SIGKILL) and waits.
	Kill(ctx context.Context) error
}

// FailureReporter is a cluster that notices when it breaks by itself.
type FailureReporter interface {
	// Failure is nil while the cluster works. Else it says which part of it
	// ended, which is harness trouble and says nothing about the cleaner.
	Failure() error
}

// ResourceUser is a cluster that knows its memory use.
type ResourceUser interface {
	// ResidentBytes returns the resident memory of all its processes together,
	// cleaner included, harness not.
	ResidentBytes() (int64, error)
}

// Auditor is a cluster that records who made every change to DANM's objects.
type Auditor interface {
	// DrainAudit returns when every request that was complete before the call
	// has been recorded. Without it, the writer of the newest changes may not
	// be known yet.
	DrainAudit(ctx context.Context) error
}

// NodeTimer is a cluster whose nodes take longer to be switched than those that
// are made for tests.
type NodeTimer interface {
	// NodeTimeout bounds FailNode, RestoreNode and AddNode, verification
	// included.
	NodeTimeout() time.Duration
}

// Observed is a cluster that is seen through its API alone: no audit log names
// writers and no node tells what it attached.
type Observed interface {
	// CleanerManagers are the field managers as which the cleaner under test
	// writes.
	CleanerManagers() []string
	// CleanerNamespace is where its Leases are, whose holders go onto the
	// history.
	CleanerNamespace() string
}
