package history

import (
	"cmp"
	"encoding/json"
	"time"
)

// SchemaVersion is the version of the record format in history.jsonl. It
// changes when an old reader would misread a new file.
const SchemaVersion = 1

// Record is one line of a history. Exactly one of the pointers is set.
type Record struct {
	N          uint64      `json:"n"`    // position in the file, from 1, assigned when recorded
	Time       time.Time   `json:"time"` // when it was recorded
	Run        *Run        `json:"run,omitempty"`
	Lane       *Lane       `json:"lane,omitempty"`
	Op         *Op         `json:"op,omitempty"`
	Attachment *Attachment `json:"attachment,omitempty"`
	Write      *Write      `json:"write,omitempty"`
	Audit      *Audit      `json:"audit,omitempty"`
	Snapshot   *Snapshot   `json:"snapshot,omitempty"`
	Gap        *Gap        `json:"gap,omitempty"`
}

// Recorder takes records in the order in which they become known. It is safe
// for concurrent use and sets N and, where it is zero, Time.
type Recorder interface {
	Record(Record)
}

// Run opens a history: who may do what in it.
type Run struct {
	SchemaVersion int    `json:"schemaVersion"`
	RunID         string `json:"runId"`
	Scenario      string `json:"scenario"`
	Cluster       string `json:"cluster"`
	Seed          uint64 `json:"seed"`
	Group         string `json:"group"`       // DANM API group in use
	CleanerUser   string `json:"cleanerUser"` // user name of the cleaner under test
	CNIUserPrefix string `json:"cniUserPrefix"`
	DryRun        bool   `json:"dryRun,omitempty"` // the cleaner must write nothing
	// Observed is set where the API is all that was seen: the history has no
	// audit records and no attachments.
	Observed *Observed `json:"observed,omitempty"`
}

// Observed says how writers are told apart without an audit log.
type Observed struct {
	CleanerManagers []string `json:"cleanerManagers"` // field managers of the cleaner under test
}

// Lane announces an independent StatefulSet with nodes and a network of its
// own. A lane that is rebuilt is announced again with the next generation.
type Lane struct {
	Name        string   `json:"name"` // "lane-3"
	Generation  int      `json:"generation"`
	Namespace   string   `json:"namespace"` // unique for each generation
	NetworkKind string   `json:"networkKind"`
	Network     string   `json:"network"` // name of the network object
	IPv4        bool     `json:"ipv4"`
	IPv6        bool     `json:"ipv6"`
	StatefulSet string   `json:"statefulSet"`
	Replicas    int      `json:"replicas"`
	Nodes       []string `json:"nodes"`
}

// OpType is the stage or outcome of an operation.
type OpType string

// Invoke opens an operation; OK, Fail and Info close it. Info means that
// nobody knows whether it happened.
const (
	Invoke OpType = "invoke"
	OK     OpType = "ok"
	Fail   OpType = "fail"
	Info   OpType = "info"
)

// Op is an operation of the workload or the nemesis.
type Op struct {
	Process   string `json:"process"` // one logical actor, one op at a time: the lane, or "cleaner"
	Type      OpType `json:"type"`
	F         string `json:"f"` // the step's verb, e.g. "fail-node"
	Lane      string `json:"lane,omitempty"`
	Iteration int    `json:"iteration"`        // from 1; 0 before the first
	Step      int    `json:"step"`             // index in the schedule of the iteration
	Target    string `json:"target,omitempty"` // node or namespace/pod
	Fault     bool   `json:"fault,omitempty"`  // the op is a planned fault
	Error     string `json:"error,omitempty"`
	Note      string `json:"note,omitempty"`
}

// AttachmentEvent says what happened to an attachment.
type AttachmentEvent string

// Attached: CNI ADD returned success. Detaching: CNI DEL is about to begin.
// Lost: the node died with it.
const (
	Attached  AttachmentEvent = "attached"
	Detaching AttachmentEvent = "detaching"
	Lost      AttachmentEvent = "lost"
)

// Attachment is ground truth from a node: a sandbox of a pod with its
// interfaces. Detaching and Lost repeat only ID, Node and the pod.
type Attachment struct {
	Event     AttachmentEvent `json:"event"`
	ID        string          `json:"id"` // container ID of the sandbox
	Node      string          `json:"node"`
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	PodUID    string          `json:"podUid"`
	// Static says that the API has only a mirror of the pod, which may go and come
	// while the pod runs on.
	Static     bool                `json:"static,omitempty"`
	Interfaces []AttachedInterface `json:"interfaces,omitempty"`
}

// AttachedInterface is one interface that CNI ADD made.
type AttachedInterface struct {
	Name        string   `json:"name"`
	Endpoint    string   `json:"endpoint"` // object name, in the pod's namespace
	EndpointUID string   `json:"endpointUid"`
	NetworkKind string   `json:"networkKind"`
	Network     string   `json:"network"`
	Addresses   []string `json:"addresses"` // without prefix length, IPv4 first
}

// WriteType is the effect of a committed write on its object.
type WriteType string

// The three effects, named as in a watch.
const (
	Added    WriteType = "ADDED"
	Modified WriteType = "MODIFIED"
	Deleted  WriteType = "DELETED"
)

// Write is one committed write, seen on a watch. Object is the object after
// the write (before it, for Deleted) without managedFields. Initial marks an
// object that was there when the watch began; nobody in the run wrote it.
type Write struct {
	RV        uint64          `json:"rv"` // revision of the write; for Deleted that of the deletion
	Type      WriteType       `json:"type"`
	Initial   bool            `json:"initial,omitempty"`
	Resource  string          `json:"resource"` // plural, e.g. "danmeps", "pods"
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name"`
	UID       string          `json:"uid"`
	Object    json.RawMessage `json:"object"`
	// Managers are the field managers that managedFields name, where nothing
	// better tells the writer: of a network those that own "alloc" and "alloc6",
	// of a new endpoint the one that owns "spec". A field with several owners,
	// or none, is left out.
	Managers map[string]string `json:"managers,omitempty"`
}

// Audit is one completed mutating request, as the API server saw it. It gives
// a Write its writer: for creates and updates UID and RV match, for deletes
// the name and, where known, the UID.
type Audit struct {
	User        string    `json:"user"`
	Verb        string    `json:"verb"` // create, update, patch, delete, deletecollection
	Resource    string    `json:"resource"`
	Subresource string    `json:"subresource,omitempty"`
	Group       string    `json:"group,omitempty"`
	Namespace   string    `json:"namespace,omitempty"`
	Name        string    `json:"name,omitempty"`
	UID         string    `json:"uid,omitempty"`
	RV          uint64    `json:"rv,omitempty"` // of the object returned; 0 if the answer carries none
	Code        int       `json:"code"`         // HTTP status; 0 if the connection broke before one
	DryRun      bool      `json:"dryRun,omitempty"`
	Begin       time.Time `json:"begin"` // request received
	End         time.Time `json:"end"`   // response complete
}

// Snapshot is what live quorum reads returned for one lane after it settled,
// or when the time to settle was over.
type Snapshot struct {
	Lane       string             `json:"lane"`
	Generation int                `json:"generation"`
	Iteration  int                `json:"iteration"`
	Settled    bool               `json:"settled"`           // the sets agreed within the budget
	Pending    string             `json:"pending,omitempty"` // why not settled
	Took       time.Duration      `json:"tookNs"`            // from the heal to the agreement
	Pods       []SnapshotPod      `json:"pods"`
	Endpoints  []SnapshotEndpoint `json:"endpoints"`
	Bits       []SnapshotBit      `json:"bits"` // set and not reserved
	Reserved   []string           `json:"reserved,omitempty"`
	Runtime    *SnapshotRuntime   `json:"runtime,omitempty"` // nil where nobody could be asked
}

// SnapshotRuntime is what the container runtimes of the lane's nodes said right
// after the API was read. Nodes without power run nothing.
type SnapshotRuntime struct {
	Sandboxes []SnapshotSandbox `json:"sandboxes"`
}

// SnapshotSandbox is a sandbox of the lane's namespace that is ready.
type SnapshotSandbox struct {
	ID     string `json:"id"`
	Node   string `json:"node"`
	Pod    string `json:"pod"`
	PodUID string `json:"podUid"`
}

// SnapshotPod is a pod of the lane as read.
type SnapshotPod struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	UID         string `json:"uid"`
	Node        string `json:"node,omitempty"`
	Phase       string `json:"phase"`
	Ready       bool   `json:"ready,omitempty"`
	Terminating bool   `json:"terminating,omitempty"`
	Interfaces  int    `json:"interfaces"` // that its annotation asks for
}

// SnapshotEndpoint is an endpoint of the lane as read.
type SnapshotEndpoint struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Pod       string   `json:"pod"`
	PodUID    string   `json:"podUid"`
	CID       string   `json:"cid,omitempty"`
	Interface string   `json:"interface"`
	Host      string   `json:"host,omitempty"`
	Addresses []string `json:"addresses"`
	// Owner is the UID of the pod that uses it, where that is known and PodUID
	// says something else: an old DANM wrote none.
	Owner string `json:"owner,omitempty"`
}

// OwnerUID is the UID of the pod that the endpoint belongs to.
func (e SnapshotEndpoint) OwnerUID() string { return cmp.Or(e.Owner, e.PodUID) }

// SnapshotBit is an allocated address of the lane's network as read.
type SnapshotBit struct {
	Family  int    `json:"family"`
	Index   int    `json:"index"`
	Address string `json:"address"`
}

// Gap says that the history is incomplete; verdicts that depend on the missing
// part are Unknown.
type Gap struct {
	Source string `json:"source"` // "watch danmeps", "audit"
	Reason string `json:"reason"`
}
