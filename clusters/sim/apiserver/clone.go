package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Clone returns a server with the same state and no hooks, whose time and UIDs
// come from o. Installing CRDs costs more than a short simulation, so whoever
// runs many clones one server. The two share what is never changed; open
// watches stay with the original.
func (s *Server) Clone(o Options) *Server {
	c := &Server{
		options:  Options{Now: o.Now, NewUID: o.NewUID, Groups: s.options.Groups, WatchList: o.WatchList},
		revision: s.revision, compacted: s.compacted, suffixes: s.suffixes, discovery: s.discovery,
		tables: make(map[schema.GroupResource]*table, len(s.tables)),
	}
	for resource, t := range s.tables {
		c.tables[resource] = t.clone()
	}
	return c
}

func (t *table) clone() *table {
	c := &table{kind: t.kind, byKey: make(map[string]*entry, len(t.byKey)), ordered: make([]*entry, len(t.ordered))}
	copies := make(map[*entry]*entry, len(t.ordered))
	for i, e := range t.ordered {
		clone := &entry{namespace: e.namespace, name: e.name, versions: slices.Clone(e.versions)}
		c.ordered[i], c.byKey[key(e.namespace, e.name)], copies[e] = clone, clone, clone
	}
	c.changes = slices.Clone(t.changes)
	for i := range c.changes {
		c.changes[i].entry = copies[c.changes[i].entry]
	}
	return c
}
