package check

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// storyChangesMax bounds how many transitions of one bit a story tells.
const storyChangesMax = 6

type scene struct {
	time time.Time
	text string
}

// story tells what happened to an attachment, its endpoint and its addresses,
// in order.
func (j *judge) story(l *life, e *endpoint, addrs []netip.Addr) []string {
	began := "CNI ADD succeeded"
	if l.isDerived() {
		began = "the API showed Ready"
	}
	scenes := []scene{
		{l.start, fmt.Sprintf("%s on %s for %s, sandbox %s, record %d", began, l.Node, l.who(), l.ID, l.record)},
	}
	if l.endedBy != "" {
		scenes = append(scenes, scene{l.end, fmt.Sprintf("the attachment may have ended from here on (%s)", l.endedBy)})
	}
	if l.object != nil {
		scenes = append(scenes, written(l.object.created, fmt.Sprintf("pod %s (uid %s) created", l.name(), l.PodUID)))
		scenes = append(scenes, written(l.object.deleted, fmt.Sprintf("pod %s (uid %s) deleted", l.name(), l.PodUID)))
	}
	scenes = append(scenes, endpointScenes(e)...)
	for _, a := range addrs {
		scenes = append(scenes, j.bitScenes(e, a)...)
	}
	return tell(scenes)
}

func endpointScenes(e *endpoint) []scene {
	return []scene{
		written(e.created, fmt.Sprintf("%s (uid %s) created for pod uid %s", e, e.uid, e.podUID)),
		written(e.deleted, fmt.Sprintf("%s (uid %s) deleted", e, e.uid)),
	}
}

// bitScenes tells the transitions of a bit, from the set that the endpoint
// relies on.
func (j *judge) bitScenes(e *endpoint, addr netip.Addr) []scene {
	a := j.model.network(e.network).address(addr)
	from := 0
	if set := a.before(e.created.place, true); set != nil {
		from = set.place
	}
	var scenes []scene
	changes := a.changes[a.firstFrom(from):]
	for i, c := range changes {
		if i == storyChangesMax {
			scenes = append(scenes, scene{c.latest, fmt.Sprintf("%s changed %d more times", addr, len(changes)-i)})
			break
		}
		verb := "cleared"
		if c.set {
			verb = "set"
		}
		scenes = append(scenes, written(c.write, fmt.Sprintf("%s %s in %s", addr, verb, e.network)))
	}
	return scenes
}

// written is a scene of a write, and an empty one without it.
func written(w *write, what string) scene {
	switch {
	case w == nil:
		return scene{}
	case w.Initial:
		return scene{w.latest, what + " before the run"}
	default:
		by := ""
		if user := w.user(); user != "" {
			by = " by " + user
		}
		return scene{w.latest, fmt.Sprintf("%s%s, rv %d", what, by, w.RV)}
	}
}

func tell(scenes []scene) []string {
	slices.SortStableFunc(scenes, func(a, b scene) int { return a.time.Compare(b.time) })
	var lines []string
	for _, s := range scenes {
		switch {
		case s.text == "":
		case s.time.IsZero():
			lines = append(lines, s.text)
		default:
			lines = append(lines, s.time.UTC().Format("15:04:05.000")+" "+s.text)
		}
	}
	return lines
}
