package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const secondPrecision = time.Second

func (c *call) delete() (answer, error) {
	options, err := c.deleteOptions()
	if err != nil {
		return answer{}, err
	}
	if c.target.subresource != "" {
		return answer{}, notImplemented("delete of %s/%s", c.target.table.kind.Resource, c.target.subresource)
	}
	old := c.target.table.find(c.target.namespace, c.target.name)
	if old == nil {
		return answer{}, c.notFound()
	}
	v, isGone, err := c.deleteVersion(old, options)
	switch {
	case err != nil:
		return answer{}, err
	case isGone && !c.target.table.kind.returnsDeleted():
		return c.answerStatus(c.statusSuccess(v.object)), nil
	}
	return c.answerVersion(http.StatusOK, v), nil
}

// deleteOptions come in the body, or in the query if there is no body.
func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	o, err := c.sentDeleteOptions()
	if err != nil {
		return nil, err
	}
	if errs := validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	c.isDryRun = c.isDryRun || len(o.DryRun) > 0
	if o.GracePeriodSeconds != nil && *o.GracePeriodSeconds < 0 {
		*o.GracePeriodSeconds = 1
	}
	return o, nil
}

func (c *call) sentDeleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	switch {
	case c.request.Deletion != nil:
		return c.request.Deletion, nil
	case len(c.request.Body) > 0:
		return o, decodeInto(c.request.ContentType, c.request.Body, o)
	}
	return o, c.deleteOptionsFromQuery(o)
}

func (c *call) deleteOptionsFromQuery(o *metav1.DeleteOptions) error {
	if value := c.request.Query.Get("gracePeriodSeconds"); value != "" {
		seconds, err := parseInt(value)
		if err != nil {
			return badRequest("unable to parse gracePeriodSeconds: %v", err)
		}
		o.GracePeriodSeconds = &seconds
	}
	if value := c.request.Query.Get("propagationPolicy"); value != "" {
		policy := metav1.DeletionPropagation(value)
		o.PropagationPolicy = &policy
	}
	return nil
}

// returnsDeleted tells whether the answer to a removal is the object itself.
func (k *kind) returnsDeleted() bool { return k.groupResource() == corev1.Resource("pods") }

// deleteVersion deletes an object: now, or, if it has a grace period or
// finalizers, by marking it. It returns the last state and whether it is gone.
func (c *call) deleteVersion(old *version, options *metav1.DeleteOptions) (*version, bool, error) {
	if err := c.checkPreconditions(old.object, options.Preconditions); err != nil {
		return nil, false, err
	}
	t, marked := c.target.table, copyForWrite(old.object)
	switch outcome := c.mark(marked, options); {
	case outcome == pending:
		return old, false, nil
	case outcome == graceful:
		return c.deleteGracefully(old, marked)
	case isHeld(marked):
		c.markFinalizing(marked)
		if t.kind.isUnchanged(old, marked) {
			return old, false, nil
		}
		return c.commit(t, old, marked), false, nil
	}
	return c.remove(t, old), true, c.afterRemove(t, marked)
}

// isHeld tells whether finalizers keep a deleted object there.
func isHeld(o Object) bool { return len(o.GetFinalizers()) > 0 || holdsNamespace(o) }

// deleteGracefully writes the marks first, even those of a pod that goes at
// once: a forced deletion is two commits, and watches see both.
func (c *call) deleteGracefully(old *version, marked Object) (*version, bool, error) {
	v := c.commit(c.target.table, old, marked)
	if *marked.GetDeletionGracePeriodSeconds() > 0 || isHeld(marked) {
		return v, false, nil
	}
	return c.remove(c.target.table, v), true, nil
}

func (c *call) checkPreconditions(o Object, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != o.GetUID():
		return c.conflict("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, o.GetUID())
	case p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion():
		return c.conflict("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, o.GetResourceVersion())
	}
	return nil
}

// outcome is what a DELETE does to an object.
type outcome int

const (
	immediate outcome = iota // it goes, unless finalizers hold it
	graceful                 // it has been marked and goes when its time is over
	pending                  // it was marked before, nothing changes
)

// mark writes grace period and garbage collection into an object that is to be
// deleted, as far as it has any.
func (c *call) mark(o Object, options *metav1.DeleteOptions) outcome {
	result := immediate
	if pod, ok := o.(*corev1.Pod); ok {
		result = c.markGraceful(pod, options)
	}
	if result != pending {
		o.SetFinalizers(finalizersFor(o, options))
	}
	return result
}

func (c *call) markGraceful(pod *corev1.Pod, options *metav1.DeleteOptions) outcome {
	if pod.DeletionTimestamp != nil {
		return c.shortenGrace(pod, options)
	}
	grace := gracePeriod(pod, options)
	at := metav1.Time{Time: c.now().Add(time.Duration(grace) * time.Second)}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	pod.Generation++
	return graceful
}

// gracePeriod is what was asked for, or the pod's own; none if nothing runs.
func gracePeriod(pod *corev1.Pod, options *metav1.DeleteOptions) int64 {
	isDone := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.Spec.NodeName == "" || isDone:
		return 0
	case options.GracePeriodSeconds != nil:
		return *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return max(*pod.Spec.TerminationGracePeriodSeconds, 1)
	}
	return 0
}

// shortenGrace is a second DELETE: it may only hurry the first.
func (c *call) shortenGrace(pod *corev1.Pod, options *metav1.DeleteOptions) outcome {
	before := pod.DeletionGracePeriodSeconds
	switch {
	case before == nil || *before == 0:
		return immediate
	case options.GracePeriodSeconds == nil || *options.GracePeriodSeconds >= *before:
		return pending
	}
	grace, now := *options.GracePeriodSeconds, c.now()
	at := metav1.Time{Time: pod.DeletionTimestamp.Add(time.Duration(grace-*before) * time.Second)}
	if at.Before(&now) {
		at = now
		if grace != 0 {
			grace = 1
		}
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	return graceful
}

// finalizersFor are the object's, with those of the garbage collector as the
// request wants them.
func finalizersFor(o Object, options *metav1.DeleteOptions) []string {
	policy := options.PropagationPolicy
	if policy == nil {
		return o.GetFinalizers()
	}
	list := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch *policy {
	case metav1.DeletePropagationForeground:
		return append(list, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		return append(list, metav1.FinalizerOrphanDependents)
	}
	return list
}

// markFinalizing marks an object that only finalizers hold.
func (c *call) markFinalizing(o Object) {
	if o.GetDeletionTimestamp() == nil && o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	now := c.now()
	if at := o.GetDeletionTimestamp(); at == nil || now.Before(at) {
		o.SetDeletionTimestamp(&now)
	}
	none := int64(0)
	o.SetDeletionGracePeriodSeconds(&none)
	markNamespace(o)
}

// deleteCollection deletes everything that a list with these options shows.
func (c *call) deleteCollection() (answer, error) {
	options, err := c.deleteOptions()
	if err != nil {
		return answer{}, err
	}
	selected, err := c.listOptions()
	if err != nil {
		return answer{}, err
	}
	items, meta := c.target.table.page(page{at: c.revision}, c.selector(selected))
	for _, v := range items {
		c.target.namespace, c.target.name = v.object.GetNamespace(), v.object.GetName()
		own := *options
		if _, _, err := c.deleteVersion(v, &own); err != nil {
			return answer{}, fmt.Errorf("deleting %s: %w", v.object.GetName(), err)
		}
	}
	return c.answerList(meta, items), nil
}
