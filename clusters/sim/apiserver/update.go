package apiserver

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const staleWrite = "the object has been modified; please apply your changes to the latest version and try again"

func (c *call) update() (answer, error) {
	t := c.target.table
	o, err := c.sentObject()
	if err != nil {
		return answer{}, err
	}
	if err := c.checkName(o); err != nil {
		return answer{}, err
	}
	old := t.find(c.target.namespace, c.target.name)
	if old == nil {
		return c.createByUpdate(o)
	}
	if uid := o.GetUID(); uid != "" && uid != old.object.GetUID() {
		return answer{}, c.conflict("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.object.GetUID())
	}
	v, err := c.replace(old, o)
	if err != nil {
		return answer{}, err
	}
	return c.answerVersion(http.StatusOK, v), nil
}

// createByUpdate is what a PUT does to a name that nothing has.
func (c *call) createByUpdate(o Object) (answer, error) {
	if !c.target.table.kind.createOnUpdate || c.target.subresource != "" {
		return answer{}, c.notFound()
	}
	if uid := o.GetUID(); uid != "" {
		return answer{}, c.conflict("Precondition failed: UID in precondition: %s, UID in object meta: ", uid)
	}
	o.SetResourceVersion("")
	v, err := c.admitAndCreate(o)
	if err != nil {
		return answer{}, err
	}
	return c.answerVersion(http.StatusCreated, v), nil
}

func (c *call) checkName(o Object) error {
	if o.GetName() == "" {
		o.SetName(c.target.name)
	}
	if o.GetName() != c.target.name {
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), c.target.name)
	}
	return c.takeNamespace(o)
}

func (c *call) conflict(format string, args ...any) error {
	return apierrors.NewConflict(c.target.table.kind.groupResource(), c.target.name, fmt.Errorf(format, args...))
}

// replace makes o, which is the server's own from now on, the next state.
func (c *call) replace(old *version, o Object) (*version, error) {
	k := c.target.table.kind
	if err := c.checkVersion(old, o); err != nil {
		return nil, err
	}
	c.keepServerFields(old.object, o)
	if err := k.keepOtherParts(old.object, o, c.target.subresource); err != nil {
		return nil, err
	}
	if err := c.validateUpdate(old.object, o); err != nil {
		return nil, err
	}
	if isReadyToGo(old.object, o) {
		return c.removeUpdated(old, o)
	}
	if k.isUnchanged(old, o) {
		return old, nil
	}
	v := c.commit(c.target.table, old, o)
	return v, c.afterCommit(c.target.table, o)
}

// checkVersion is the compare of compare-and-swap.
func (c *call) checkVersion(old *version, o Object) error {
	current := strconv.FormatInt(old.rv, 10)
	switch o.GetResourceVersion() {
	case current:
		return nil
	case "", "0":
		if !c.target.table.kind.unconditionalUpdate {
			return c.invalid(field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"))
		}
		o.SetResourceVersion(current)
		return nil
	}
	return c.conflict(staleWrite)
}

func (c *call) invalid(errs ...*field.Error) error {
	return apierrors.NewInvalid(c.target.table.kind.groupVersionKind().GroupKind(), c.target.name, errs)
}

// keepServerFields undoes what a client may not change.
func (c *call) keepServerFields(old, o Object) {
	if o.GetUID() == "" {
		o.SetUID(old.GetUID())
	}
	o.SetGeneration(old.GetGeneration())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetSelfLink("")
	o.SetManagedFields(nil)
	if at := old.GetDeletionTimestamp(); at != nil {
		o.SetDeletionTimestamp(at)
		o.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
	c.target.table.kind.name(o)
}

// keepOtherParts makes an update of the status change nothing but the status,
// and one of the object everything but the status.
func (k *kind) keepOtherParts(old, o Object, subresource string) error {
	switch {
	case subresource == subresourceStatus && k.isCustom():
		keepCustom(old, o)
		return nil
	case subresource == subresourceStatus:
		copyPart(o, old, partSpec)
		return nil
	case subresource == subresourceFinalize:
		copyPart(o, old, partStatus)
		return nil
	case subresource != "":
		return notImplemented("update of %s/%s", k.Resource, subresource)
	case k.hasStatus():
		copyPart(o, old, partStatus)
	}
	keepFinalizersOfNamespace(old, o)
	if k.hasGeneration && k.isSpecChanged(old, o) {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	return nil
}

func (c *call) validateUpdate(old, o Object) error {
	k := c.target.table.kind
	metadata := field.NewPath("metadata")
	if o.GetUID() != old.GetUID() {
		return c.invalid(field.Invalid(metadata.Child("uid"), o.GetUID(), "field is immutable"))
	}
	if old.GetDeletionTimestamp() == nil && o.GetDeletionTimestamp() != nil {
		return c.invalid(field.Invalid(metadata.Child("deletionTimestamp"), o.GetDeletionTimestamp(), "field is immutable"))
	}
	if old.GetDeletionTimestamp() != nil {
		for _, f := range o.GetFinalizers() {
			if !slices.Contains(old.GetFinalizers(), f) {
				return c.invalid(field.Forbidden(metadata.Child("finalizers"), "no new finalizers can be added if the object is being deleted, found new finalizers "+strconv.Quote(f)))
			}
		}
	}
	if err := k.validateTransition(old, o); err != nil {
		return err
	}
	return k.validate(o)
}

// isReadyToGo tells whether an update takes the last obstacle away from an
// object that is being deleted.
func isReadyToGo(old, o Object) bool {
	grace := old.GetDeletionGracePeriodSeconds()
	return old.GetDeletionTimestamp() != nil && !isHeld(o) && (grace == nil || *grace == 0)
}

// removeUpdated removes an object whose update took away what held it. The
// update itself is never stored; only whoever asked for it sees it.
func (c *call) removeUpdated(old *version, o Object) (*version, error) {
	c.remove(c.target.table, old)
	return &version{object: o}, c.afterRemove(c.target.table, o)
}

// isUnchanged tells whether storing o would store what is there already. The
// real server writes nothing then, and the resourceVersion stays.
func (k *kind) isUnchanged(old *version, o Object) bool {
	if k.isCustom() {
		return isEqualJSON(old.object.(*unstructured.Unstructured).Object, o.(*unstructured.Unstructured).Object)
	}
	sent, stored := o.(protobufObject), old.object.(protobufObject)
	return sent.Size() == stored.Size() && bytes.Equal(old.bytes(inProtobuf), marshalProtobuf(sent))
}

func (k *kind) isSpecChanged(old, o Object) bool {
	if k.isCustom() {
		return isCustomSpecChanged(old, o, k.hasStatus())
	}
	return !isPartEqual(old, o, partSpec)
}

// afterCommit lets commits of some kinds change what the server serves.
func (c *call) afterCommit(t *table, o Object) error {
	if t.kind.isDefinition() && !c.isDryRun {
		return c.serveCRD(o)
	}
	return nil
}

func (c *call) afterRemove(t *table, o Object) error {
	if t.kind.isDefinition() && !c.isDryRun {
		return c.withdrawCRD(o)
	}
	return nil
}

// statusSuccess is the answer to the removal of an object that is not returned.
func (c *call) statusSuccess(o Object) *metav1.Status {
	k := c.target.table.kind
	return &metav1.Status{
		Status: metav1.StatusSuccess, Code: http.StatusOK,
		Details: &metav1.StatusDetails{Group: k.Group, Kind: k.Resource, Name: o.GetName(), UID: o.GetUID()},
	}
}
