package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Generated names are a prefix and a suffix of a fixed length, as the real
// server makes them. A counter instead of a random number keeps runs alike.
const (
	generatedNameMax    = 63
	suffixLength        = 5
	suffixAlphabet      = "bcdfghjklmnpqrstvwxz2456789"
	generatedNamesTried = 8
)

func (c *call) create() (answer, error) {
	switch c.target.subresource {
	case subresourceBinding:
		return c.bind()
	case subresourceEviction:
		return c.evict()
	}
	k := c.target.table.kind
	if k.Namespaced && c.target.namespace == "" {
		return answer{}, badRequest("the server does not allow this method on the requested resource: no namespace")
	}
	o, err := c.sentObject()
	if err != nil {
		return answer{}, err
	}
	v, err := c.admitAndCreate(o)
	if err != nil {
		return answer{}, err
	}
	return c.answerVersion(http.StatusCreated, v), nil
}

// admitAndCreate makes o, which is the server's own from now on, an object of
// the target's collection.
func (c *call) admitAndCreate(o Object) (*version, error) {
	if err := c.takeNamespace(o); err != nil {
		return nil, err
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewInternalError(fmt.Errorf("resourceVersion should not be set on objects to be created"))
	}
	if err := c.takeName(o); err != nil {
		return nil, err
	}
	if err := c.admitIntoNamespace(o); err != nil {
		return nil, err
	}
	t := c.target.table
	if t.find(o.GetNamespace(), o.GetName()) != nil {
		return nil, apierrors.NewAlreadyExists(t.kind.groupResource(), o.GetName())
	}
	c.stamp(o)
	t.kind.setDefaults(o)
	if err := t.kind.validate(o); err != nil {
		return nil, err
	}
	if t.kind.isDefinition() {
		k, err := kindOf(o)
		if err != nil {
			return nil, err
		}
		o.(*unstructured.Unstructured).Object["status"] = k.established(c.now())
	}
	v := c.commit(t, nil, o)
	return v, c.afterCommit(t, o)
}

// takeNamespace gives the object the namespace of the path.
func (c *call) takeNamespace(o Object) error {
	wanted := c.target.namespace
	switch o.GetNamespace() {
	case wanted:
		return nil
	case "":
		o.SetNamespace(wanted)
		return nil
	}
	return badRequest("the namespace of the provided object does not match the namespace sent on the request")
}

func (c *call) takeName(o Object) error {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(c.generateName(o))
	}
	k := c.target.table.kind
	path := field.NewPath("metadata", "name")
	if o.GetName() == "" {
		return apierrors.NewInvalid(k.groupVersionKind().GroupKind(), "", field.ErrorList{field.Required(path, "name or generateName is required")})
	}
	var errs field.ErrorList
	for _, why := range validation.NameIsDNSSubdomain(o.GetName(), false) {
		errs = append(errs, field.Invalid(path, o.GetName(), why))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(k.groupVersionKind().GroupKind(), o.GetName(), errs)
	}
	return nil
}

// generateName returns a free name. After a few that are taken it returns a
// taken one, and the creation fails as it would on the real server.
func (c *call) generateName(o Object) string {
	prefix := o.GetGenerateName()
	prefix = prefix[:min(len(prefix), generatedNameMax-suffixLength)]
	name := ""
	for range generatedNamesTried {
		c.suffixes++
		name = prefix + suffix(c.suffixes)
		if c.target.table.find(o.GetNamespace(), name) == nil {
			break
		}
	}
	return name
}

func suffix(n uint64) string {
	var b strings.Builder
	for range suffixLength {
		b.WriteByte(suffixAlphabet[n%uint64(len(suffixAlphabet))])
		n /= uint64(len(suffixAlphabet))
	}
	return b.String()
}

// admitIntoNamespace refuses what would be made in a namespace that is missing
// or on its way out.
func (c *call) admitIntoNamespace(o Object) error {
	k := c.target.table.kind
	if !k.Namespaced {
		return nil
	}
	found := c.tables[corev1.Resource("namespaces")].find("", o.GetNamespace())
	if found == nil {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), o.GetNamespace())
	}
	if found.object.GetDeletionTimestamp() == nil {
		return nil
	}
	err := apierrors.NewForbidden(k.groupResource(), o.GetName(),
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", o.GetNamespace()))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", o.GetNamespace()), Field: "metadata.namespace",
	})
	return err
}

// stamp sets what only the server may set.
func (c *call) stamp(o Object) {
	k := c.target.table.kind
	o.SetUID(c.options.NewUID())
	o.SetCreationTimestamp(c.now())
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetSelfLink("")
	o.SetManagedFields(nil)
	o.SetGeneration(0)
	if k.hasGeneration {
		o.SetGeneration(1)
	}
	if k.hasStatus() {
		k.clearStatus(o)
	}
}

// now has the precision that times have on the wire. Zone and monotonic clock
// reading go, as they would when the object is read again.
func (s *Server) now() metav1.Time {
	return metav1.Time{Time: s.options.Now().Truncate(secondPrecision).Local()}
}
