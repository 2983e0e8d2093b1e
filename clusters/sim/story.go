package sim

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// tell adds a sentence to the story, with the virtual time that has passed.
func (w *world) tell(format string, args ...any) {
	if !w.options.Story {
		return
	}
	at := time.Since(epoch).Truncate(time.Millisecond)
	w.story = append(w.story, fmt.Sprintf("%9.3fs  %s", at.Seconds(), fmt.Sprintf(format, args...)))
}

// tellOption tells what happens next, unless it is nothing to tell.
func (w *world) tellOption(o option) {
	if !w.options.Story {
		return
	}
	switch o.kind {
	case deliverEvent:
		if e, ok := o.stream.watch.Peek(); ok && e.Name != "" {
			w.tell("%s hears: %s %s %s", o.actor, strings.ToLower(string(e.Type)), one(o.stream.resource), w.known(o.stream.resource, e.Name))
		}
	case worldStep:
		w.tell("%s: %s", o.actor, o.what())
	case passTime:
		w.tell("time passes: %s", o.pause.Round(time.Millisecond))
	}
}

var verbsInWords = map[string]string{
	"get": "reads", "list": "lists", "watch": "watches", "create": "creates", "update": "writes", "patch": "patches", "delete": "deletes",
}

// tellCall tells of a request and what came of it.
func (w *world) tellCall(c *call, a answer) {
	if !w.options.Story || c.target == "leases" || c.target == "discovery" {
		return
	}
	verb := verbsInWords[c.verb]
	name := c.request.Path[strings.LastIndexByte(c.request.Path, '/')+1:]
	object := c.target
	if c.verb != "list" && c.verb != "watch" && c.verb != "create" {
		object = one(c.target) + " " + w.known(c.target, name)
	}
	outcome := ""
	switch {
	case a.err != nil:
		outcome = ": " + a.err.Error()
	case a.response.Code >= http.StatusBadRequest:
		outcome = fmt.Sprintf(": refused, %d", a.response.Code)
	}
	w.tell("%s %s %s%s", c.actor.name, verb, object, outcome)
}

// one names one object of a resource.
func one(resource string) string {
	switch {
	case resource == danm.EndpointResource:
		return "DanmEp"
	case resource == "pods":
		return "pod"
	case resource == "nodes":
		return "node"
	}
	if kind, ok := danm.NetworkKindOf(resource); ok {
		return string(kind)
	}
	return resource
}

// short is enough of a UID to tell it from others.
func short(uid types.UID) types.UID { return uid[:min(8, len(uid))] }

// known adds to an endpoint's name whose it is.
func (w *world) known(resource, name string) string {
	if ep := w.endpoints[name]; ep != nil && resource == danm.EndpointResource {
		return fmt.Sprintf("%s (of %s %s, %s)", name, ep.Spec.Pod, short(w.ownerOf(ep)), ep.Spec.Interface.Address+ep.Spec.Interface.AddressIPv6)
	}
	return name
}

// Bounds of what shortened recognises: so many sentences in a row, told again at
// least so often.
const (
	refrainMax = 4
	refrainMin = 3
)

// shortened tells only once what happens over and over: at the end of a run that
// does not settle, cleaners look around for minutes.
func shortened(story []string) []string {
	var out []string
	for i := 0; i < len(story); {
		n, times := refrain(story[i:])
		out = append(out, story[i:i+n]...)
		if times > 1 {
			at, _ := sentence(story[i+n*times-1])
			out = append(out, fmt.Sprintf("%*s  the same %d times more, until %ss", len(at)+1, "...", times-1, strings.TrimSpace(at)))
		}
		i += n * times
	}
	return out
}

// refrain returns how many of the first lines come again at once, and how often
// they stand there: one line, once, if they do not.
func refrain(story []string) (lines, times int) {
	for n := 1; n <= refrainMax; n++ {
		times := 1
		for sameSentences(story, n, times) {
			times++
		}
		if times > refrainMin {
			return n, times
		}
	}
	return 1, 1
}

// sameSentences tells whether the first n lines stand there once more, after so
// many times.
func sameSentences(story []string, n, after int) bool {
	if len(story) < n*(after+1) {
		return false
	}
	for i := range n {
		_, first := sentence(story[i])
		if _, again := sentence(story[n*after+i]); first != again {
			return false
		}
	}
	return true
}

// sentence takes a line apart.
func sentence(line string) (at, what string) {
	at, what, _ = strings.Cut(line, "s  ")
	return at, what
}
