package apiserver

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// call is one request on its way through the server.
type call struct {
	*Server
	request  Request
	target   target
	asVerb   string // of the whole request, once that is known
	encoding encoding
	isDryRun bool
	effect   int64
}

// answer is what a call comes to when it is not refused.
type answer struct {
	code    int
	body    []byte
	objects []Object
	list    *List
	status  *metav1.Status
	served  runtime.Object
}

// Serve answers any request but a watch. What it commits, it commits before it
// returns, and nothing of a request that it refuses.
func (s *Server) Serve(r Request) Response {
	c := &call{Server: s, request: r}
	a, err := c.serve()
	if err != nil {
		return c.refuse(err)
	}
	return Response{
		Code: a.code, ContentType: c.encoding.contentType(), Body: a.body,
		Objects: a.objects, List: a.list, Status: a.status, Served: a.served, Effect: c.effect,
	}
}

// refuse answers with a Status, in protobuf if the client would rather.
func (c *call) refuse(err error) Response {
	status := statusOf(err)
	e, negotiated := negotiate(c.request.Accept, true)
	if negotiated != nil {
		e = inJSON
	}
	response := Response{
		Code: int(status.Code), ContentType: e.contentType(), Body: encodeStatus(status, e), Status: status, Effect: c.effect,
	}
	if status.Details != nil {
		response.RetryAfter = int(status.Details.RetryAfterSeconds)
	}
	return response
}

func (c *call) serve() (answer, error) {
	if a, ok := c.discover(); ok {
		return a, nil
	}
	if err := c.prepare(); err != nil {
		return answer{}, err
	}
	if c.request.IsWatch() {
		return answer{}, badRequest("a watch is no single answer")
	}
	switch c.verb() {
	case "get":
		return c.get()
	case "list":
		return c.list()
	case "create":
		return c.create()
	case "update":
		return c.update()
	case "patch":
		return c.patch()
	case "delete":
		return c.delete()
	case "deletecollection":
		return c.deleteCollection()
	}
	return answer{}, refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
}

// prepare finds out what the request is about and how to answer it.
func (c *call) prepare() error {
	var err error
	if c.target, err = c.route(c.request.Path); err != nil {
		return err
	}
	if c.encoding, err = negotiate(c.request.Accept, !c.target.table.kind.isCustom()); err != nil {
		return err
	}
	switch dryRun := c.request.Query["dryRun"]; {
	case len(dryRun) == 0:
	case slices.Equal(dryRun, []string{metav1.DryRunAll}):
		c.isDryRun = true
	default:
		return refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "dryRun: unsupported value %q, supported: %q", dryRun, metav1.DryRunAll)
	}
	if c.request.Query.Get("fieldValidation") == metav1.FieldValidationStrict {
		return notImplemented("fieldValidation=%s", metav1.FieldValidationStrict)
	}
	return nil
}

// verb is the request's as audit logs call it, empty if there is none.
func (c *call) verb() string {
	if c.asVerb == "" {
		c.asVerb = c.findVerb()
	}
	return c.asVerb
}

func (c *call) findVerb() string {
	isObject := c.target.name != ""
	switch c.request.Method {
	case http.MethodGet:
		return either(isObject, "get", "list")
	case http.MethodPost:
		isCreation := !isObject || slices.Contains(subresourceVerbs(c.target.subresource), "create")
		return either(isCreation, "create", "")
	case http.MethodPut:
		return either(isObject, "update", "")
	case http.MethodPatch:
		return either(isObject, "patch", "")
	case http.MethodDelete:
		return either(isObject, "delete", "deletecollection")
	}
	return ""
}

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

func (c *call) answerVersion(code int, v *version) answer {
	return answer{code: code, body: c.target.table.kind.encodeVersion(v, c.encoding), objects: []Object{v.object}}
}

func (c *call) answerList(meta metav1.ListMeta, items []*version) answer {
	k := c.target.table.kind
	return answer{
		code: http.StatusOK, body: k.encodeList(meta, items, c.encoding), objects: objectsOf(items),
		list: &List{metav1.TypeMeta{APIVersion: k.GroupVersion().String(), Kind: k.Kind + "List"}, meta},
	}
}

func (c *call) answerStatus(status *metav1.Status) answer {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	e, err := negotiate(c.request.Accept, true)
	if err == nil {
		c.encoding = e
	}
	return answer{code: int(status.Code), body: encodeStatus(status, c.encoding), status: status}
}
