package apiserver

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (c *call) get() (answer, error) {
	at, err := c.readAt(c.request.Query.Get("resourceVersion"), "")
	if err != nil {
		return answer{}, err
	}
	v := c.target.table.findAt(c.target.namespace, c.target.name, at)
	if v == nil {
		return answer{}, c.notFound()
	}
	return c.answerVersion(http.StatusOK, v), nil
}

// readAt returns the resourceVersion that a read sees. Without one it is the
// newest, as in a quorum read; with 0 it may be any older one; with another it
// is that one or newer, unless it must match exactly.
func (c *call) readAt(requested string, match metav1.ResourceVersionMatch) (int64, error) {
	if requested == "" {
		return c.revision, nil
	}
	rv, err := strconv.ParseInt(requested, 10, 64)
	if err != nil || rv < 0 {
		return 0, badRequest("resourceVersion: invalid value %q", requested)
	}
	cached := c.revision
	if c.request.Snapshot > 0 {
		cached = min(cached, c.request.Snapshot)
	}
	switch {
	case rv > c.revision:
		return 0, tooLarge(rv, c.revision)
	case match == metav1.ResourceVersionMatchExact:
		return rv, c.refuseCompacted(rv)
	case rv > cached:
		return rv, nil // a cache that is behind waits until it has that much
	}
	return cached, nil
}

// tooLarge is the answer to a resourceVersion that has not been reached.
func tooLarge(requested, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", requested, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

func (c *call) refuseCompacted(rv int64) error {
	if rv > 0 && rv < c.compacted {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rv, c.compacted))
	}
	return nil
}

// listOptions reads and validates the query of a list or a watch.
func (c *call) listOptions() (internalversion.ListOptions, error) {
	query := c.request.Query
	o := internalversion.ListOptions{
		ResourceVersion:      query.Get("resourceVersion"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(query.Get("resourceVersionMatch")),
		Watch:                isTrue(query.Get("watch")),
		AllowWatchBookmarks:  isTrue(query.Get("allowWatchBookmarks")),
		Continue:             query.Get("continue"),
	}
	if value := query.Get("sendInitialEvents"); value != "" {
		wanted := isTrue(value)
		o.SendInitialEvents = &wanted
	}
	var err error
	if o.LabelSelector, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return o, badRequest("unable to parse labelSelector: %v", err)
	}
	if o.FieldSelector, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return o, badRequest("unable to parse fieldSelector: %v", err)
	}
	if o.Limit, err = parseInt(query.Get("limit")); err != nil {
		return o, badRequest("unable to parse limit: %v", err)
	}
	if errs := validation.ValidateListOptions(&o, c.options.WatchList); len(errs) > 0 {
		return o, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return o, c.target.table.kind.checkFields(o.FieldSelector)
}

func parseInt(value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	return strconv.ParseInt(value, 10, 64)
}

// checkFields refuses a selector that names a field which this kind is not
// selected by.
func (k *kind) checkFields(s fields.Selector) error {
	if s.Empty() {
		return nil
	}
	var known fields.Set
	if k.selectable != nil {
		known = k.selectable(k.emptyObject())
	}
	for _, requirement := range s.Requirements() {
		switch _, ok := known[requirement.Field]; {
		case ok, requirement.Field == "metadata.name", requirement.Field == "metadata.namespace" && k.Namespaced:
		default:
			return badRequest("field label not supported: %s", requirement.Field)
		}
	}
	return nil
}

// selector tells which objects a list or a watch is about.
type selector struct {
	kind      *kind
	namespace string // empty: all
	labels    labels.Selector
	fields    fields.Selector
}

func (c *call) selector(o internalversion.ListOptions) selector {
	s := selector{kind: c.target.table.kind, namespace: c.target.namespace}
	if !o.LabelSelector.Empty() {
		s.labels = o.LabelSelector
	}
	if !o.FieldSelector.Empty() {
		s.fields = o.FieldSelector
	}
	return s
}

func (s selector) matches(o Object) bool {
	switch {
	case s.namespace != "" && s.namespace != o.GetNamespace():
		return false
	case s.labels != nil && !s.labels.Matches(labels.Set(o.GetLabels())):
		return false
	}
	return s.fields == nil || s.fields.Matches(s.kind.fieldsOf(o))
}

func (k *kind) fieldsOf(o Object) fields.Set {
	set := fields.Set{}
	if k.selectable != nil {
		set = k.selectable(o)
	}
	set["metadata.name"] = o.GetName()
	if k.Namespaced {
		set["metadata.namespace"] = o.GetNamespace()
	}
	return set
}

func (c *call) list() (answer, error) {
	o, err := c.listOptions()
	if err != nil {
		return answer{}, err
	}
	p, err := c.pageOf(o)
	if err != nil {
		return answer{}, err
	}
	items, meta := c.target.table.page(p, c.selector(o))
	return c.answerList(meta, items), nil
}

// page is the part of a list that one answer holds.
type page struct {
	at    int64  // resourceVersion that is read
	after string // key of the last item of the page before
	limit int64  // 0: everything
}

// pageOf decodes the continue token, which carries the resourceVersion of the
// first page so that all pages show one moment.
func (c *call) pageOf(o internalversion.ListOptions) (page, error) {
	if o.Continue == "" {
		at, err := c.readAt(o.ResourceVersion, o.ResourceVersionMatch)
		return page{at: at, limit: o.Limit}, err
	}
	token, err := base64.RawURLEncoding.DecodeString(o.Continue)
	version, after, ok := strings.Cut(string(token), " ")
	at, parsed := strconv.ParseInt(version, 10, 64)
	if err != nil || !ok || parsed != nil {
		return page{}, badRequest("continue key is not valid: %q", o.Continue)
	}
	if at < c.compacted {
		return page{}, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
	}
	return page{at: at, after: after, limit: o.Limit}, nil
}

// page returns the items of a page in the order of their keys.
func (t *table) page(p page, s selector) ([]*version, metav1.ListMeta) {
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(p.at, 10)}
	var items []*version
	last := ""
	for _, e := range t.ordered {
		k := key(e.namespace, e.name)
		v := e.at(p.at)
		if v == nil || p.after != "" && !isAfter(e, p.after) || !s.matches(v.object) {
			continue
		}
		if p.limit > 0 && int64(len(items)) == p.limit {
			meta.Continue = base64.RawURLEncoding.EncodeToString([]byte(meta.ResourceVersion + " " + last))
			break
		}
		items, last = append(items, v), k
	}
	return items, meta
}

// isAfter tells whether the entry comes after the key in the order of lists.
func isAfter(e *entry, k string) bool {
	namespace, name, _ := strings.Cut(k, "/")
	return compareEntries(e, &entry{namespace: namespace, name: name}) > 0
}

func objectsOf(items []*version) []Object {
	objects := make([]Object, len(items))
	for i, v := range items {
		objects[i] = v.object
	}
	return objects
}
