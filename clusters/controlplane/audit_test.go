package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// event returns a line of the audit log with the given fields, and the usual
// ones where they are not given.
func event(fields string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"x",` +
		`"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000002Z",` + fields + `}`
}

const (
	complete     = `"stage":"ResponseComplete",`
	cleanerUser  = `"user":{"username":"danm-cleaner","groups":["system:masters"]},`
	endpointRef  = `"objectRef":{"resource":"danmeps","namespace":"ns","name":"ep","apiGroup":"danm.io","apiVersion":"v1"},`
	endpointPath = `"requestURI":"/apis/danm.io/v1/namespaces/ns/danmeps/ep",`
)

func TestDecodeAudit(t *testing.T) {
	base := history.Audit{
		User: "danm-cleaner", Resource: "danmeps", Group: "danm.io", Namespace: "ns", Name: "ep", Code: 200,
		Begin: time.Date(2026, 1, 2, 3, 4, 5, 1000, time.UTC), End: time.Date(2026, 1, 2, 3, 4, 5, 2000, time.UTC),
	}
	with := func(change func(*history.Audit)) *history.Audit { a := base; change(&a); return &a }
	tests := []struct {
		name, line string
		want       *history.Audit
		wantErr    string
	}{
		{
			name: "a patch answers with the object",
			line: event(complete + cleanerUser + endpointRef + endpointPath + `"verb":"patch","responseStatus":{"metadata":{},"code":200},
				"responseObject":{"kind":"DanmEp","metadata":{"name":"ep","uid":"u1","resourceVersion":"42"}}`),
			want: with(func(a *history.Audit) { a.Verb, a.UID, a.RV = "patch", "u1", 42 }),
		},
		{
			name: "the impersonated user is the writer",
			line: event(complete + `"user":{"username":"danm-harness"},"impersonatedUser":{"username":"system:node:n1"},` + endpointRef + endpointPath + `"verb":"update","responseStatus":{"code":200}`),
			want: with(func(a *history.Audit) { a.User, a.Verb = "system:node:n1", "update" }),
		},
		{
			name: "a delete answers with a Status that names the object",
			line: event(complete + cleanerUser + endpointRef + endpointPath + `"verb":"delete","responseStatus":{"code":200},
				"responseObject":{"kind":"Status","metadata":{},"details":{"name":"ep","uid":"u1"}}`),
			want: with(func(a *history.Audit) { a.Verb, a.UID = "delete", "u1" }),
		},
		{
			name: "a delete that waits for a finalizer answers with the object",
			line: event(complete + cleanerUser + endpointRef + endpointPath + `"verb":"delete","responseStatus":{"code":200},
				"responseObject":{"kind":"DanmEp","metadata":{"name":"ep","uid":"u1","resourceVersion":"7"}}`),
			want: with(func(a *history.Audit) { a.Verb, a.UID, a.RV = "delete", "u1", 7 }),
		},
		{
			name: "a dry run of a delete stands in its options",
			line: event(complete + cleanerUser + endpointRef + endpointPath + `"verb":"delete","responseStatus":{"code":200},"requestObject":{"kind":"DeleteOptions","dryRun":["All"]}`),
			want: with(func(a *history.Audit) { a.Verb, a.DryRun = "delete", true }),
		},
		{
			name: "a dry run of an update stands in the URI",
			line: event(complete + cleanerUser + endpointRef + `"requestURI":"/apis/danm.io/v1/namespaces/ns/danmeps/ep?dryRun=All&x=y","verb":"update","responseStatus":{"code":200},"requestObject":{"dryRun":1}`),
			want: with(func(a *history.Audit) { a.Verb, a.DryRun = "update", true }),
		},
		{
			name: "a generated name is in the answer only",
			line: event(complete + cleanerUser + `"objectRef":{"resource":"danmeps","namespace":"ns","apiGroup":"danm.io"},` + endpointPath + `"verb":"create","responseStatus":{"code":201},
				"responseObject":{"metadata":{"name":"ep-x7","uid":"u1","resourceVersion":"9"}}`),
			want: with(func(a *history.Audit) { a.Verb, a.Name, a.UID, a.RV, a.Code = "create", "ep-x7", "u1", 9, 201 }),
		},
		{
			name: "a refused update changes nothing",
			line: event(complete + cleanerUser + endpointRef + endpointPath + `"verb":"update","responseStatus":{"code":409},"responseObject":{"kind":"Status","metadata":{},"details":{"name":"ep"}}`),
			want: with(func(a *history.Audit) { a.Verb, a.Code = "update", 409 }),
		},
		{
			name: "a subresource is kept apart",
			line: event(complete + cleanerUser + `"objectRef":{"resource":"danmeps","subresource":"status","namespace":"ns","name":"ep","apiGroup":"danm.io"},` + endpointPath + `"verb":"patch","responseStatus":{"code":200}`),
			want: with(func(a *history.Audit) { a.Verb, a.Subresource = "patch", "status" }),
		},
		{
			name: "after a panic there is no code",
			line: event(`"stage":"Panic",` + cleanerUser + endpointRef + endpointPath + `"verb":"patch"`),
			want: with(func(a *history.Audit) { a.Verb, a.Code = "patch", 0 }),
		},
		{name: "a request that begins is no record", line: event(`"stage":"RequestReceived",` + cleanerUser + endpointRef + endpointPath + `"verb":"patch"`)},
		{name: "half a line", line: event(complete)[:60], wantErr: "unexpected end of JSON"},
		{name: "an unknown stage", line: event(`"stage":"Later",` + cleanerUser + endpointPath + `"verb":"patch"`), wantErr: `unknown stage "Later"`},
		{name: "no user", line: event(complete + endpointRef + endpointPath + `"verb":"patch"`), wantErr: "no user"},
		{name: "no URI", line: event(complete + cleanerUser + endpointRef + `"verb":"patch"`), wantErr: "empty url"},
		{
			name:    "a resourceVersion that is no number",
			line:    event(complete + cleanerUser + endpointRef + endpointPath + `"verb":"patch","responseObject":{"metadata":{"resourceVersion":"x"}}`),
			wantErr: "resourceVersion",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeAudit([]byte(tt.line))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("audit (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDecodeAudit(f *testing.F) {
	f.Add(event(complete + cleanerUser + endpointRef + endpointPath + `"verb":"delete","requestObject":{"dryRun":["All"]},"responseObject":{"kind":"Status","details":{"uid":"u"}}`))
	f.Add(event(`"stage":"Panic",`))
	f.Add(`{"objectRef":null,"user":[]}`)
	f.Fuzz(func(t *testing.T, line string) {
		got, err := decodeAudit([]byte(line))
		if err == nil && got != nil && (got.User == "" || got.Verb == "") {
			t.Errorf("a record without user or verb: %+v", got)
		}
	})
}

// openTail follows a log that the test writes.
func openTail(t *testing.T) (*auditTail, *os.File, *memoryRecorder) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	recorder := &memoryRecorder{}
	tail, err := openAuditTail(path, recorder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tail.stop)
	return tail, log, recorder
}

func write(t *testing.T, log *os.File, text string) {
	t.Helper()
	if _, err := log.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func named(name string) string {
	return event(complete + cleanerUser + `"objectRef":{"resource":"danmeps","name":"` + name + `"},` + endpointPath + `"verb":"patch"`)
}

func names(audits []history.Audit) string {
	var out []string
	for _, a := range audits {
		out = append(out, a.Name)
	}
	return strings.Join(out, " ")
}

func TestTheTailRecordsWhatWasWrittenBeforeADrain(t *testing.T) {
	tail, log, recorder := openTail(t)
	for i := range 100 {
		write(t, log, named(fmt.Sprint(i))+"\n")
		if err := tail.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if audits, _ := recorder.audits(); len(audits) != i+1 {
			t.Fatalf("%d records after %d lines", len(audits), i+1)
		}
	}
}

func TestTheTailWaitsForTheEndOfALine(t *testing.T) {
	tail, log, recorder := openTail(t)
	line := named("a") + "\n"
	write(t, log, line[:50])
	if err := tail.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	audits, gaps := recorder.audits()
	if len(audits)+len(gaps) > 0 {
		t.Errorf("half a line gave %v %v", audits, gaps)
	}
	write(t, log, line[50:])
	if err := tail.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	audits, gaps = recorder.audits()
	if names(audits) != "a" || len(gaps) > 0 {
		t.Errorf("records %q, gaps %v", names(audits), gaps)
	}
	if err := tail.drain(t.Context()); err != nil {
		t.Errorf("draining what is closed: %v", err)
	}
}

func TestTheTailReadsLinesOfAnyLength(t *testing.T) {
	tail, log, recorder := openTail(t)
	long := strings.Replace(named("long"), `"verb"`, `"annotations":{"x":"`+strings.Repeat("y", 5<<20)+`"},"verb"`, 1)
	write(t, log, named("a")+"\n"+long+"\n"+named("b")+"\n")
	if err := tail.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if audits, gaps := recorder.audits(); names(audits) != "a long b" || len(gaps) > 0 {
		t.Errorf("records %q, gaps %v", names(audits), gaps)
	}
}

func TestWhatTheTailCannotReadIsAGap(t *testing.T) {
	tail, log, recorder := openTail(t)
	write(t, log, named("a")+"\nnot an event\n"+named("b")+"\n"+named("c")[:40])
	if err := tail.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	audits, gaps := recorder.audits()
	if names(audits) != "a b" {
		t.Errorf("records %q, want a and b", names(audits))
	}
	if len(gaps) != 2 || !strings.Contains(gaps[0].Reason, "not an event") || !strings.Contains(gaps[1].Reason, "ends within a line") {
		t.Errorf("gaps %v", gaps)
	}
}

func TestTheTailFollowsWithoutBeingAsked(t *testing.T) {
	_, log, recorder := openTail(t)
	write(t, log, named("a")+"\n")
	err := pollBriefly(t, func() bool { audits, _ := recorder.audits(); return len(audits) == 1 })
	if err != nil {
		t.Error(err)
	}
}
