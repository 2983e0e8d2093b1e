package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

const (
	// auditInterval is how often the log is looked at while the cluster runs.
	auditInterval = 50 * time.Millisecond
	// auditBufferBytes is the size of one read; lines may be much longer.
	auditBufferBytes = 64 << 10
	// auditExcerptMax bounds how much of a malformed line a gap repeats.
	auditExcerptMax = 200
	auditSource     = "audit"
)

// auditEvent holds the fields we need of an audit.k8s.io/v1 Event.
type auditEvent struct {
	Stage                    string
	RequestURI               string
	Verb                     string
	User                     auditUser
	ImpersonatedUser         *auditUser
	ObjectRef                auditObjectRef
	ResponseStatus           struct{ Code int }
	RequestObject            json.RawMessage
	ResponseObject           json.RawMessage
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
}

type auditUser struct{ Username string }

type auditObjectRef struct{ Resource, Subresource, APIGroup, Namespace, Name string }

// auditAnswer is what the API server sent back: an object, or a Status whose
// details name the object.
type auditAnswer struct {
	Kind     string
	Metadata struct{ Name, UID, ResourceVersion string }
	Details  struct{ UID string }
}

// decodeAudit reads one line of the audit log. It returns nil for stages that
// do not complete a request.
func decodeAudit(line []byte) (*history.Audit, error) {
	var e auditEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("decoding audit event: %w", err)
	}
	switch e.Stage {
	case "ResponseComplete", "Panic":
	case "RequestReceived", "ResponseStarted":
		return nil, nil
	default:
		return nil, fmt.Errorf("decoding audit event: unknown stage %q", e.Stage)
	}
	out := &history.Audit{
		User: e.writer(), Verb: e.Verb, Code: e.ResponseStatus.Code,
		Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource, Group: e.ObjectRef.APIGroup,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Begin: e.RequestReceivedTimestamp, End: e.StageTimestamp,
	}
	if out.User == "" || out.Verb == "" {
		return nil, errors.New("decoding audit event: it has no user or no verb")
	}
	var err error
	if out.DryRun, err = e.isDryRun(); err != nil {
		return nil, err
	}
	return out, e.addAnswer(out)
}

// writer is the user as whom the request was carried out.
func (e *auditEvent) writer() string {
	if e.ImpersonatedUser != nil && e.ImpersonatedUser.Username != "" {
		return e.ImpersonatedUser.Username
	}
	return e.User.Username
}

// isDryRun looks at the URI and, for deletes, at the options in the body:
// clients use either. The body is known only where the policy keeps it.
func (e *auditEvent) isDryRun() (bool, error) {
	uri, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return false, fmt.Errorf("decoding audit event: %w", err)
	}
	if slices.Contains(uri.Query()["dryRun"], "All") {
		return true, nil
	}
	if len(e.RequestObject) == 0 || (e.Verb != "delete" && e.Verb != "deletecollection") {
		return false, nil
	}
	var options struct{ DryRun []string }
	if err := json.Unmarshal(e.RequestObject, &options); err != nil {
		return false, fmt.Errorf("decoding delete options in audit event: %w", err)
	}
	return slices.Contains(options.DryRun, "All"), nil
}

func (e *auditEvent) addAnswer(out *history.Audit) error {
	if len(e.ResponseObject) == 0 {
		return nil
	}
	var answer auditAnswer
	if err := json.Unmarshal(e.ResponseObject, &answer); err != nil {
		return fmt.Errorf("decoding answer in audit event: %w", err)
	}
	if answer.Kind == "Status" {
		out.UID = answer.Details.UID
		return nil
	}
	out.UID = answer.Metadata.UID
	if out.Name == "" { // of a create with generateName
		out.Name = answer.Metadata.Name
	}
	if answer.Metadata.ResourceVersion == "" {
		return nil
	}
	rv, err := strconv.ParseUint(answer.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("decoding resourceVersion in audit event: %w", err)
	}
	out.RV = rv
	return nil
}

// auditTail follows the audit log and records what it says.
type auditTail struct {
	recorder history.Recorder

	mu      sync.Mutex // one reader at a time, so records keep the log's order
	file    *os.File
	reader  *bufio.Reader
	partial []byte // the begin of a line whose end is not written yet
	closed  bool   // everything is recorded, the file is closed

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// openAuditTail begins to follow the log, which must exist.
func openAuditTail(path string, recorder history.Recorder) (*auditTail, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening audit log: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &auditTail{
		recorder: recorder, file: file, stop: cancel,
		reader: bufio.NewReaderSize(file, auditBufferBytes),
	}
	t.stopped.Go(func() { t.follow(ctx) })
	return t, nil
}

func (t *auditTail) follow(ctx context.Context) {
	ticker := time.NewTicker(auditInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := t.drain(ctx); err != nil && ctx.Err() == nil {
			t.gap(err.Error())
			return
		}
	}
}

// drain records every line that is complete in the file when it is called. It
// reads to the end of the file, which may have moved on meanwhile.
func (t *auditTail) drain(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ctx.Err() == nil && !t.closed {
		chunk, err := t.reader.ReadBytes('\n')
		t.partial = append(t.partial, chunk...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading audit log: %w", err)
		}
		t.record(t.partial)
		t.partial = t.partial[:0]
	}
	return ctx.Err()
}

func (t *auditTail) record(line []byte) {
	line = bytes.TrimSpace(line)
	audit, err := decodeAudit(line)
	if err != nil {
		t.gap(fmt.Sprintf("%v, in line %.*q", err, auditExcerptMax, line))
		return
	}
	if audit != nil {
		t.recorder.Record(history.Record{Audit: audit})
	}
}

func (t *auditTail) gap(reason string) {
	t.recorder.Record(history.Record{Gap: &history.Gap{Source: auditSource, Reason: reason}})
}

// close records the rest of the log. The API server must have ended. A last
// line without an end is a request of which nobody knows how it went.
func (t *auditTail) close(ctx context.Context) error {
	t.stop()
	t.stopped.Wait()
	err := t.drain(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && len(t.partial) > 0 {
		t.gap(fmt.Sprintf("the log ends within a line: %.*q", auditExcerptMax, t.partial))
	}
	t.closed = true
	return errors.Join(err, t.file.Close())
}
