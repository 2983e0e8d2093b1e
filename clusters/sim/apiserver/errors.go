package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReasonNotImplemented is that of every answer 501: the real server would have
// done something here, and this one does not know what.
const ReasonNotImplemented metav1.StatusReason = "NotImplemented"

func refusal(code int, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

func notImplemented(format string, args ...any) error {
	return refusal(http.StatusNotImplemented, ReasonNotImplemented, "the simulated API server does not have this: "+format, args...)
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// notFoundPath is the answer to a path that means nothing.
func notFoundPath() error {
	return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func notServed(group schema.GroupVersion, resource string) error {
	if slices.Contains(kubernetesGroups, group.Group) {
		return notImplemented("resource %s of %s", resource, group)
	}
	return notFoundPath()
}

func (c *call) notFound() error {
	return apierrors.NewNotFound(c.target.table.kind.groupResource(), c.target.name)
}

// statusOf turns an error into what goes over the wire.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}
