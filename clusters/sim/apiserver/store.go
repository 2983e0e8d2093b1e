package apiserver

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is what is stored: *corev1.Pod and its like for Kubernetes' own
// kinds, *unstructured.Unstructured for custom resources.
type Object interface {
	runtime.Object
	metav1.Object
}

// version is one state of an object, with what it looks like on the wire once
// somebody asked for that.
type version struct {
	rv     int64
	object Object // nil: the object is gone since rv
	json   []byte
	proto  []byte // without envelope
}

// entry is one name with everything that ever had it, oldest first.
type entry struct {
	namespace, name string
	versions        []*version
}

// at returns the state at rv, nil if there was none.
func (e *entry) at(rv int64) *version {
	for i := len(e.versions) - 1; i >= 0; i-- {
		if v := e.versions[i]; v.rv <= rv {
			if v.object == nil {
				return nil
			}
			return v
		}
	}
	return nil
}

func (e *entry) latest() *version {
	if v := e.versions[len(e.versions)-1]; v.object != nil {
		return v
	}
	return nil
}

// change is one commit as the watches of its resource need it.
type change struct {
	rv       int64
	entry    *entry
	old, new *version // nil: there was, or is, none
	gone     *version // the last state under the removal's rv; nil unless removed
}

// table holds all objects of one resource. Nothing is ever thrown away, since
// any old state may be read as a stale snapshot, and a run is short.
type table struct {
	kind    *kind
	byKey   map[string]*entry
	ordered []*entry // by namespace and name, as lists are
	changes []change
}

func newTable(k *kind) *table { return &table{kind: k, byKey: map[string]*entry{}} }

func key(namespace, name string) string { return namespace + "/" + name }

func (t *table) find(namespace, name string) *version {
	if e := t.byKey[key(namespace, name)]; e != nil {
		return e.latest()
	}
	return nil
}

func (t *table) findAt(namespace, name string, rv int64) *version {
	if e := t.byKey[key(namespace, name)]; e != nil {
		return e.at(rv)
	}
	return nil
}

func compareEntries(a, b *entry) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

func (t *table) entryOf(namespace, name string) *entry {
	k := key(namespace, name)
	if e := t.byKey[k]; e != nil {
		return e
	}
	e := &entry{namespace: namespace, name: name}
	t.byKey[k] = e
	i, _ := slices.BinarySearchFunc(t.ordered, e, compareEntries)
	t.ordered = slices.Insert(t.ordered, i, e)
	return e
}

// commit makes o the state of its name; o belongs to the server from now on. A
// dry run gets the answer and changes nothing.
func (c *call) commit(t *table, old *version, o Object) *version {
	s := c.Server
	if c.isDryRun {
		return &version{object: o}
	}
	s.revision++
	o.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	t.kind.name(o)
	v := &version{rv: s.revision, object: o}
	e := t.entryOf(o.GetNamespace(), o.GetName())
	e.versions = append(e.versions, v)
	t.changes = append(t.changes, change{rv: s.revision, entry: e, old: old, new: v})
	c.announce(t, e, old, v)
	return v
}

// remove makes the name free and returns the last state, under the rv of the
// removal.
func (c *call) remove(t *table, old *version) *version {
	s := c.Server
	if c.isDryRun {
		return old
	}
	s.revision++
	last := copyForWrite(old.object)
	last.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	gone := &version{rv: s.revision, object: last}
	e := t.entryOf(last.GetNamespace(), last.GetName())
	e.versions = append(e.versions, &version{rv: s.revision})
	t.changes = append(t.changes, change{rv: s.revision, entry: e, old: old, gone: gone})
	c.announce(t, e, old, nil)
	return gone
}

func (c *call) announce(t *table, e *entry, old, new *version) {
	c.effect = c.revision
	commit := Commit{
		RV: c.revision, Time: c.options.Now(), User: c.request.User, Verb: c.verb(),
		Resource: t.kind.groupResource(), Namespace: e.namespace, Name: e.name, state: new,
	}
	if old != nil {
		commit.Old = old.object
	}
	if new != nil {
		commit.New = new.object
	} else {
		commit.state = old
	}
	for _, hook := range c.hooks {
		hook(commit)
	}
}
