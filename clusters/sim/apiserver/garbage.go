package apiserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// live is an object that exists, with where it is.
type live struct {
	table   *table
	version *version
}

// everything returns all objects in a fixed order.
func (s *Server) everything() []live {
	var all []live
	for _, gr := range s.sortedResources() {
		t := s.tables[gr]
		for _, e := range t.ordered {
			if v := e.latest(); v != nil {
				all = append(all, live{t, v})
			}
		}
	}
	return all
}

// CollectGarbage takes one step of the garbage collector as that user: it
// deletes objects whose owners are all gone, and lets go of owners whose
// dependents it was to delete first, or to orphan. It returns how many objects
// it wrote; 0 means that there is nothing to do.
func (s *Server) CollectGarbage(user string) int {
	written := 0
	for _, l := range s.everything() {
		c := s.internalCall(user, l)
		o := l.version.object
		var isWritten bool
		switch {
		case isFinalizing(o, metav1.FinalizerOrphanDependents):
			isWritten = c.orphanDependents(l)
		case isFinalizing(o, metav1.FinalizerDeleteDependents):
			isWritten = c.deleteDependents(l)
		case o.GetDeletionTimestamp() == nil && s.isOrphan(o):
			_, _, err := c.deleteVersion(l.version, &metav1.DeleteOptions{})
			isWritten = err == nil
		}
		if isWritten {
			written++
		}
	}
	return written
}

func (s *Server) internalCall(user string, l live) *call {
	o := l.version.object
	return &call{
		Server: s, request: Request{User: user, Method: "DELETE"},
		target: target{table: l.table, namespace: o.GetNamespace(), name: o.GetName()},
	}
}

func isFinalizing(o Object, finalizer string) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), finalizer)
}

// isOrphan tells whether the object names owners, none of which exists.
func (s *Server) isOrphan(o Object) bool {
	owners := o.GetOwnerReferences()
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return s.exists(r, o.GetNamespace()) })
}

// exists tells whether exactly the owner is there, and not another of its name.
func (s *Server) exists(r metav1.OwnerReference, namespace string) bool {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return true // nobody knows
	}
	for _, k := range s.kindsOf(gv.Group, gv.Version) {
		if k.Kind != r.Kind {
			continue
		}
		if !k.Namespaced {
			namespace = ""
		}
		v := s.tables[k.groupResource()].find(namespace, r.Name)
		return v != nil && v.object.GetUID() == r.UID
	}
	return true // of a kind that is not served, nobody knows
}

// dependents are the objects that name the owner.
func (s *Server) dependents(owner types.UID, matches func(metav1.OwnerReference) bool) []live {
	return slices.DeleteFunc(s.everything(), func(l live) bool {
		return !slices.ContainsFunc(l.version.object.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.UID == owner && matches(r)
		})
	})
}

// deleteDependents deletes what must go before the owner, and then lets go of
// the owner.
func (c *call) deleteDependents(owner live) bool {
	blocking := c.dependents(owner.version.object.GetUID(), func(r metav1.OwnerReference) bool {
		return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
	isWritten := false
	for _, l := range blocking {
		if l.version.object.GetDeletionTimestamp() == nil {
			foreground := metav1.DeletePropagationForeground
			_, _, err := c.internalCall(c.request.User, l).deleteVersion(l.version, &metav1.DeleteOptions{PropagationPolicy: &foreground})
			isWritten = isWritten || err == nil
		}
	}
	if len(blocking) > 0 {
		return isWritten
	}
	return c.dropFinalizer(owner, metav1.FinalizerDeleteDependents)
}

// orphanDependents makes the dependents forget the owner, and then lets go of
// it.
func (c *call) orphanDependents(owner live) bool {
	uid := owner.version.object.GetUID()
	for _, l := range c.dependents(uid, func(metav1.OwnerReference) bool { return true }) {
		o := copyForWrite(l.version.object)
		kept := slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.UID == uid })
		o.SetOwnerReferences(kept)
		c.commit(l.table, l.version, o)
	}
	return c.dropFinalizer(owner, metav1.FinalizerOrphanDependents)
}

func (c *call) dropFinalizer(l live, finalizer string) bool {
	o := copyForWrite(l.version.object)
	o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == finalizer }))
	_, err := c.replace(l.version, o)
	return err == nil
}

// DrainNamespaces takes one step of the namespace controller as that user: it
// deletes what is in namespaces that are being deleted, and lets go of those
// that are empty. It returns how many objects it wrote.
func (s *Server) DrainNamespaces(user string) int {
	written := 0
	all := s.everything()
	for _, l := range all {
		namespace, ok := l.version.object.(*corev1.Namespace)
		if !ok || namespace.DeletionTimestamp == nil {
			continue
		}
		left := 0
		for _, inside := range all {
			if inside.version.object.GetNamespace() != namespace.Name {
				continue
			}
			left++
			if inside.version.object.GetDeletionTimestamp() == nil {
				_, _, err := s.internalCall(user, inside).deleteVersion(inside.version, &metav1.DeleteOptions{})
				written += countIf(err == nil)
			}
		}
		if left == 0 && holdsNamespace(namespace) {
			written += countIf(s.internalCall(user, l).finalizeNamespace(l))
		}
	}
	return written
}

func countIf(condition bool) int {
	if condition {
		return 1
	}
	return 0
}

func (c *call) finalizeNamespace(l live) bool {
	namespace := copyForWrite(l.version.object).(*corev1.Namespace)
	namespace.Spec.Finalizers = nil
	c.target.subresource = subresourceFinalize
	_, err := c.replace(l.version, namespace)
	return err == nil
}
