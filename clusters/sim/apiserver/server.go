package apiserver

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// UserSystem makes the namespaces that every cluster has.
const UserSystem = "system:apiserver"

// systemNamespaces are there from the start, as in every cluster.
var systemNamespaces = []string{
	metav1.NamespaceDefault, "kube-node-lease", metav1.NamespacePublic, metav1.NamespaceSystem,
}

// Options says what a server is made of. Now and NewUID are required.
type Options struct {
	// Now stamps creations and deletions.
	Now func() time.Time
	// NewUID names objects; two calls never return the same.
	NewUID func() types.UID
	// Groups are the DANM groups whose CRDs are installed from the start. More
	// can be installed, and all can be removed, as usual: by their CRDs.
	Groups []danm.Group
	// WatchList says whether a watch may begin with the present state
	// (sendInitialEvents); without it such a watch is answered by a 422.
	WatchList bool
}

// Server is the API server. It may be used by one caller at a time; hooks and
// watches are part of that caller.
type Server struct {
	options   Options
	revision  int64 // resourceVersion of the latest commit
	compacted int64 // reads of this and older ones are answered by a 410
	tables    map[schema.GroupResource]*table
	hooks     []func(Commit)
	suffixes  uint64 // of generated names
	// discovery are answers by path, shared with clones until one of them
	// serves something else.
	discovery *sync.Map
}

// New returns a server with the system namespaces and the CRDs of the groups.
func New(o Options) (*Server, error) {
	if o.Now == nil || o.NewUID == nil {
		return nil, fmt.Errorf("making an API server: Now and NewUID are required")
	}
	s := &Server{options: o, tables: map[schema.GroupResource]*table{}, discovery: &sync.Map{}}
	for _, k := range builtinKinds() {
		s.serveKind(k)
	}
	for _, name := range systemNamespaces {
		if err := s.createNamespace(name); err != nil {
			return nil, err
		}
	}
	for _, g := range o.Groups {
		if err := s.installGroup(g); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// installGroup creates the CRDs of a group. Their kinds are shared by all
// servers of the process, which begins thousands of them.
func (s *Server) installGroup(g danm.Group) error {
	prepared, err := definitionsOf(g)
	if err != nil {
		return fmt.Errorf("making an API server: %w", err)
	}
	for _, d := range prepared {
		crd := copyUnstructured(d.crd)
		c := &call{Server: s, request: Request{User: UserSystem}, target: target{table: s.tables[crdResource.GroupResource()]}}
		c.stamp(crd)
		crd.Object["status"] = d.kind.established(s.now())
		c.commit(c.target.table, nil, crd)
		s.serveKind(d.kind)
	}
	return nil
}

func (s *Server) createNamespace(name string) error {
	c := &call{Server: s, request: Request{User: UserSystem}, target: target{table: s.tables[corev1.Resource("namespaces")]}}
	if _, err := c.admitAndCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("making an API server: creating namespace %s: %w", name, err)
	}
	return nil
}

func (s *Server) serveKind(k *kind) {
	s.tables[k.groupResource()] = newTable(k)
	s.discovery = &sync.Map{}
}

// ResourceVersion returns that of the latest commit.
func (s *Server) ResourceVersion() int64 { return s.revision }

// Compact makes lists and watches from rv or older answer 410, as etcd's
// compaction does. Watches that are open go on.
func (s *Server) Compact(rv int64) { s.compacted = min(max(s.compacted, rv), s.revision) }

// Commit is one write that took effect. Old is nil for a creation and New for
// a removal. Both are shared with the server and must not be changed.
type Commit struct {
	RV        int64
	Time      time.Time
	User      string
	Verb      string // of the request, as audit logs have it: create, update, patch, delete, deletecollection
	Resource  schema.GroupResource
	Namespace string
	Name      string
	Old, New  Object
	state     *version // New, or Old if that is nil
}

// JSON returns the encoded New, or Old if that is nil. It must not be changed.
func (c Commit) JSON() []byte { return c.state.bytes(inJSON) }

// OnCommit calls hook with every commit from now on, inside the request that
// made it. The hook may read, and must not write.
func (s *Server) OnCommit(hook func(Commit)) { s.hooks = append(s.hooks, hook) }
