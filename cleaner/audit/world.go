package audit

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// World is what complete live lists of a cluster said. The lists are not of
// one moment, so a single look may catch an ADD or a DEL halfway; see
// Report.Confirm.
type World struct {
	// Time is just after the last read.
	Time        time.Time
	Group       danm.Group
	Networks    []*danm.Network // with Kind set
	Endpoints   []*danm.Endpoint
	ReservedIPs []*unstructured.Unstructured
	Pods        []Pod
	Nodes       []Node
	// Malformed are the endpoints and networks that could not be converted.
	Malformed []Malformed
	// Unread are the lists that failed. What they would have held is unknown.
	Unread []Unread
	// Migration says that the other API group holds endpoints; empty if it does not.
	Migration string
}

// Pod is what decisions need of a pod, and its state in words for the reader.
type Pod struct {
	Namespace, Name string
	ResourceVersion string
	NodeName        string
	Phase           string
	Terminating     bool
	Evidence        ownership.Pod // Lookup is Found
}

// isVouching tells whether the pod proves that its interfaces are in use.
func (p *Pod) isVouching() bool { return !p.Evidence.Completed && !p.Terminating }

// Node is what decisions need of a node. Host is its hostname label, which is
// what DANM writes on some clouds.
type Node struct {
	Name, Host      string
	ResourceVersion string
	Evidence        ownership.Node // Lookup is Found
}

// Malformed is an object that cannot be understood.
type Malformed struct {
	Resource  string // plural, as in URLs
	Namespace string
	Name      string
	UID       types.UID
	Cause     string
}

// Unread is a list that failed.
type Unread struct {
	Resource string `json:"resource"` // plural, as in URLs
	Cause    string `json:"cause"`
}

// Resources that are not DANM's own, as they appear in Unread. Discovery
// stands for everything: without it nothing else was read.
const (
	PodResource  = "pods"
	NodeResource = "nodes"
	Discovery    = "API groups"
)
