package clusters

import (
	"context"
	"time"
)

// NodePauser is a cluster that can make a node hang.
type NodePauser interface {
	// PauseNode stops the node's time: nothing on it runs, nothing ends, and
	// its connections stay open.
	PauseNode(ctx context.Context, name string) error
	// ResumeNode lets everything go on from where it stood, late.
	ResumeNode(ctx context.Context, name string) error
}

// KubeletStopper is a cluster that can take a node's kubelet away.
type KubeletStopper interface {
	// StopKubelet ends the kubelet. Its pods run on.
	StopKubelet(ctx context.Context, name string) error
	StartKubelet(ctx context.Context, name string) error
}

// RuntimeKiller is a cluster that can kill a node's container runtime.
type RuntimeKiller interface {
	// KillRuntime kills it at once; the node starts it again by itself. Its
	// containers run on.
	KillRuntime(ctx context.Context, name string) error
}

// NodePartitioner is a cluster that can cut the wire between a node and the
// API server.
type NodePartitioner interface {
	// PartitionNode drops every packet in both directions. Pods run on and
	// reach those of other nodes.
	PartitionNode(ctx context.Context, name string) error
	// HealNode mends the wire. A node that was not cut off is no error.
	HealNode(ctx context.Context, name string) error
}

// NodeDeleter is a cluster in which a Node object can be deleted while its
// machine stays.
type NodeDeleter interface {
	// DeleteNode deletes the object. A kubelet that runs does not make it
	// again before it is started anew.
	DeleteNode(ctx context.Context, name string) error
}

// NodeFencer is a cluster whose nodes can be declared to be without power, as
// people do before they have pods forced off.
type NodeFencer interface {
	// FenceNode taints the node out-of-service. Kubernetes then removes its
	// pods by itself.
	FenceNode(ctx context.Context, name string) error
	// UnfenceNode takes the taint away. A node without it is no error.
	UnfenceNode(ctx context.Context, name string) error
}

// PluginBreaker is a cluster that can spoil DANM's CNI plugin on a node.
type PluginBreaker interface {
	// RemovePlugin takes the program away: neither ADD nor DEL can begin.
	RemovePlugin(ctx context.Context, node string) error
	// SlowPlugin makes every call wait before it does anything.
	SlowPlugin(ctx context.Context, node string, delay time.Duration) error
	// MendPlugin puts it back. One that works is no error.
	MendPlugin(ctx context.Context, node string) error
}

// Sandbox is a pod as a node's container runtime knows it.
type Sandbox struct {
	ID        string
	Namespace string
	Pod       string
	PodUID    string
}

// SandboxLister is a cluster that knows which pods really run, whatever its API
// says: a pod of a node that was cut off runs on after it was force-deleted.
type SandboxLister interface {
	// Sandboxes returns those that are ready, by name. A node without power
	// has none.
	Sandboxes(ctx context.Context, node string) ([]Sandbox, error)
}

// NodeCordoner is a cluster in which nodes can be kept from taking pods.
type NodeCordoner interface {
	CordonNode(ctx context.Context, name string) error
	// UncordonNode takes back what CordonNode did, and nothing that others did.
	UncordonNode(ctx context.Context, name string) error
}

// NodeTainter is a cluster in which a dead node can be declared out of service,
// so that the control plane deletes its pods.
type NodeTainter interface {
	TaintNode(ctx context.Context, name string) error
	// UntaintNode takes back what TaintNode did.
	UntaintNode(ctx context.Context, name string) error
}
