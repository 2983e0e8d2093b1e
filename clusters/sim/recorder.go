package sim

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// recorder keeps the history. Many things happen at one virtual instant, so it
// spreads them: every moment it hands out is later than the one before, which
// gives writes and attachments one exact order.
type recorder struct {
	records []history.Record
	last    time.Time
	// digest is a hash over every step and every record with its time. It is
	// taken on the way, while the processor has them at hand.
	digest  *xxhash.Digest
	scratch []byte
}

func newRecorder() *recorder { return &recorder{digest: xxhash.New()} }

// hashStep adds a step to the digest, whose methods never fail.
func (r *recorder) hashStep(step string) {
	_, _ = r.digest.WriteString(step)
	_, _ = r.digest.WriteString("\n")
}

func (r *recorder) moment() time.Time {
	now := time.Now().Round(0).UTC()
	if !now.After(r.last) {
		now = r.last.Add(time.Nanosecond)
	}
	r.last = now
	return now
}

func (r *recorder) add(record history.Record) {
	record.Time, record.N = r.moment(), uint64(len(r.records)+1)
	r.records = append(r.records, record)
	r.scratch = strconv.AppendInt(r.scratch[:0], record.Time.UnixNano(), 36)
	_, _ = r.digest.Write(r.scratch)
	if record.Write != nil {
		_, _ = r.digest.Write(record.Write.Object)
	}
}

// isRecorded tells whether writes of the resource belong into the history, with
// those of every other cluster.
func isRecorded(resource string) bool {
	switch resource {
	case "pods", "danmeps", "reservedips", "danmnets", "tenantnetworks", "clusternetworks":
		return true
	}
	return false
}

// commit records a write and who made it.
func (r *recorder) commit(c apiserver.Commit) {
	object, effect := c.New, history.Modified
	switch {
	case c.New == nil:
		object, effect = c.Old, history.Deleted
	case c.Old == nil:
		effect = history.Added
	}
	audit := history.Audit{
		User: c.User, Verb: c.Verb, Resource: c.Resource.Resource, Group: c.Resource.Group,
		Namespace: c.Namespace, Name: c.Name, UID: string(object.GetUID()), Code: 200,
	}
	if effect != history.Deleted {
		audit.RV = uint64(c.RV)
	}
	audit.Begin = r.moment()
	audit.End = audit.Begin
	r.add(history.Record{Write: &history.Write{
		RV: uint64(c.RV), Type: effect, Resource: c.Resource.Resource, Namespace: c.Namespace, Name: c.Name,
		UID: string(object.GetUID()), Object: outline(c, object),
	}})
	r.add(history.Record{Audit: &audit})
}

// outline returns the JSON of what a checker reads: all of DANM's objects, and of
// a pod where it was in its life, as its names are in the record already.
func outline(c apiserver.Commit, o apiserver.Object) json.RawMessage {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return c.JSON()
	}
	out := []byte{'{'}
	if at := pod.DeletionTimestamp; at != nil {
		out = at.UTC().AppendFormat(append(out, `"metadata":{"deletionTimestamp":"`...), time.RFC3339)
		out = append(out, `"},`...)
	}
	out = append(out, `"spec":{"nodeName":`...)
	out = strconv.AppendQuote(out, pod.Spec.NodeName)
	out = append(out, `},"status":{"phase":`...)
	out = strconv.AppendQuote(out, string(pod.Status.Phase))
	return append(out, `}}`...)
}
