package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// Where the API is all that was seen, managedFields name who changed a bitmap,
// and a pod that is Ready stands for its attachment. Both say less than an
// audit log and a node would. What nobody broke needs no writer to be judged,
// so such a run can still be Valid; what somebody broke whom nothing names
// makes it Unknown.

// unjudged is what a history without audit log and attachments cannot show.
var unjudged = []string{
	"who deleted a DanmEp: there is no audit log",
	"requests of the cleaner other than its writes to networks: there is no audit log",
	"attachments before their pod is Ready and from its deletion mark on: no node reports them",
}

// observe names the writers that managedFields tell.
func (j *judge) observe(writes []*write) {
	j.report.Unjudged = slices.Clone(unjudged)
	placeInTime(writes)
	before := map[string]map[string]string{} // bitmaps by UID
	for _, list := range [][]*write{j.initial, writes} {
		for _, w := range list {
			if _, isNetwork := danm.NetworkKindOf(w.Resource); isNetwork {
				j.observeNetwork(w, before)
			} else if w.Resource == danm.EndpointResource && w.Type == history.Added {
				w.manager = w.Managers["spec"]
			}
		}
	}
}

// observeNetwork takes the owner of the bitmaps that changed for the writer.
func (j *judge) observeNetwork(w *write, before map[string]map[string]string) {
	if w.Type == history.Deleted {
		return
	}
	now, err := bitmapsOf(w)
	if err != nil {
		j.unknownf(HistoryComplete, "%s at rv %d cannot be read: %v", w.key(), w.RV, err)
		return
	}
	last, known := before[w.UID]
	before[w.UID] = now
	if w.Initial || !known {
		w.manager = w.Managers[danm.IPv4.Field()]
		return
	}
	j.count(HistoryComplete)
	changed := false
	var writers []string
	for _, f := range []danm.Family{danm.IPv4, danm.IPv6} {
		if last[f.Field()] != now[f.Field()] {
			changed = true
			writers = append(writers, w.Managers[f.Field()])
		}
	}
	slices.Sort(writers)
	if writers = slices.Compact(writers); len(writers) == 1 {
		w.manager = writers[0]
	}
	if changed && w.manager == "" {
		j.unknownf(HistoryComplete, "managedFields do not tell who made rv %d: %s %s", w.RV, w.Type, w.key())
	}
}

func bitmapsOf(w *write) (map[string]string, error) {
	var object danm.Network
	if err := json.Unmarshal(w.Object, &object); err != nil {
		return nil, err
	}
	kind, _ := danm.NetworkKindOf(w.Resource)
	object.Kind = string(kind)
	bitmaps := map[string]string{}
	for _, spec := range object.Pools() {
		bitmaps[spec.Family.Field()] = spec.Fields.Alloc
	}
	return bitmaps, nil
}

func (j *judge) blameManager(manager string) Blame {
	switch {
	case manager == "":
		return BlameUnknown
	case slices.Contains(j.run.Observed.CleanerManagers, manager):
		return BlameCleaner
	default:
		return BlameOther
	}
}

// setsForNewEndpoint tells whether a bit that the write set is for an endpoint
// that is yet to come. Where CNIs have no user of their own, that is everybody
// but the cleaner.
func (j *judge) setsForNewEndpoint(w *write) bool {
	blame := j.blame(w.user())
	return blame == BlameCNI || j.run.Observed != nil && blame != BlameCleaner
}

// podState is what a pod's object says about its attachment.
type podState struct {
	Metadata struct {
		DeletionTimestamp *time.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase      string                          `json:"phase"`
		Conditions []struct{ Type, Status string } `json:"conditions"`
	} `json:"status"`
}

func (s podState) isReady() bool {
	if s.Metadata.DeletionTimestamp != nil || s.Status.Phase != "Running" {
		return false
	}
	for _, c := range s.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// deriveLives takes each time in which a pod is Ready for the life of an
// attachment. That is less than its real life on both ends, so what is found
// missing in it was missing. Revisions order it exactly against all writes.
func (j *judge) deriveLives(writes []*write) {
	open := map[string]*life{} // by pod UID
	for _, w := range writes {
		if w.Resource != "pods" || j.lanes.byNamespace[w.Namespace] == nil {
			continue
		}
		var s podState
		if err := json.Unmarshal(w.Object, &s); err != nil {
			j.unknownf(HistoryComplete, "%s at rv %d cannot be read: %v", w.key(), w.RV, err)
			continue
		}
		isReady := w.Type != history.Deleted && s.isReady()
		switch l := open[w.UID]; {
		case isReady && l == nil:
			if l = j.derive(w, s.Spec.NodeName); l != nil {
				open[w.UID] = l
				j.lives = append(j.lives, l)
			}
		case !isReady && l != nil:
			l.to, l.endedBy = w, "its pod was no longer Ready"
			delete(open, w.UID)
		}
	}
}

// derive returns the life that begins with the write, or nil if the node may
// have no power: what the API says of it is old then.
func (j *judge) derive(w *write, node string) *life {
	if j.lanes.isDoubtful(node, w.latest) {
		return nil
	}
	faces, cid := j.facesOf(w)
	if len(faces) == 0 {
		j.unknownf(HistoryComplete, "pod %s/%s (uid %s) is Ready at rv %d, but no watch showed an endpoint of it", w.Namespace, w.Name, w.UID, w.RV)
	}
	return &life{
		Attachment: &history.Attachment{
			Event: history.Attached, ID: cid, Node: node, Namespace: w.Namespace, Pod: w.Name, PodUID: w.UID, Interfaces: faces,
		},
		record: w.record, start: w.latest, end: j.lanes.nextFault(node, w.latest),
		object: j.model.pods[w.UID], from: w,
	}
}

// facesOf returns what CNI ADD gave to the pod before it became Ready: the
// endpoints of its newest sandbox, whether they still exist or not.
func (j *judge) facesOf(w *write) (faces []history.AttachedInterface, cid string) {
	var last []*endpoint
	for _, e := range j.model.ofPod[w.UID] {
		if e.created.place > w.place {
			continue
		}
		if e.cid != cid || len(last) == 0 {
			last, cid = nil, e.cid
		}
		last = append(last, e)
	}
	for i, e := range last {
		face := history.AttachedInterface{
			Name: fmt.Sprintf("eth%d", i), Endpoint: e.name, EndpointUID: e.uid,
			NetworkKind: string(e.network.Kind), Network: e.network.Name,
		}
		for _, a := range e.addresses {
			face.Addresses = append(face.Addresses, a.String())
		}
		faces = append(faces, face)
	}
	return faces, cid
}
