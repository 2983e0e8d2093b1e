package kind

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// begin is the time of every line that a test writes.
var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// appendTo does what a plugin on a node does.
func appendTo(t *testing.T, folder, node string, text string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(folder, node+attachmentsSuffix), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func lineOf(t *testing.T, event history.AttachmentEvent, id string) string {
	t.Helper()
	line, err := json.Marshal(history.Record{Time: begin, Attachment: &history.Attachment{Event: event, ID: id, Pod: "pod-" + id}})
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

// events names what was recorded: "attached a".
func events(records []history.Record) []string {
	var out []string
	for _, r := range records {
		switch {
		case r.Gap != nil:
			out = append(out, "gap")
		case r.Attachment != nil:
			out = append(out, string(r.Attachment.Event)+" "+r.Attachment.ID)
		}
	}
	return out
}

func wantEvents(t *testing.T, m *history.Memory, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, events(m.Records())); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestWhatWasLiveIsLostWithItsNode(t *testing.T) {
	folder, m := t.TempDir(), &history.Memory{}
	a := followAttachments(folder, m)
	appendTo(t, folder, "n1", lineOf(t, history.Attached, "b")+lineOf(t, history.Attached, "a")+lineOf(t, history.Attached, "c"))
	appendTo(t, folder, "n1", lineOf(t, history.Detaching, "c"))
	appendTo(t, folder, "n2", lineOf(t, history.Attached, "d"))
	if err := a.lose("n1"); err != nil {
		t.Fatal(err)
	}
	if err := a.lose("n1"); err != nil { // it had nothing left
		t.Fatal(err)
	}
	if err := a.lose("n3"); err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, m, "attached b", "attached a", "attached c", "detaching c", "attached d", "lost a", "lost b")
	for _, r := range m.Records()[:5] {
		if !r.Time.Equal(begin) {
			t.Errorf("%s %s is recorded with our time %v, not with that of the plugin", r.Attachment.Event, r.Attachment.ID, r.Time)
		}
	}
	if last := m.Records()[6].Attachment; last.Pod != "pod-b" || last.Node != "n1" {
		t.Errorf("recorded %+v", last)
	}
}

func TestALineThatIsNotThroughIsWaitedFor(t *testing.T) {
	folder, m := t.TempDir(), &history.Memory{}
	a := followAttachments(folder, m)
	line := lineOf(t, history.Attached, "a")
	appendTo(t, folder, "n1", line[:9])
	if err := a.drain(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, m)
	appendTo(t, folder, "n1", line[9:])
	if err := a.drain(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, m, "attached a")
	appendTo(t, folder, "n1", line[:9])
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, m, "attached a", "gap")
}

func TestALineThatIsNoneIsAnError(t *testing.T) {
	for _, line := range []string{"{}\n", "nonsense\n"} {
		folder, m := t.TempDir(), &history.Memory{}
		appendTo(t, folder, "n1", line)
		a := &attachments{folder: folder, recorder: m, files: map[string]*attachmentFile{}}
		if err := a.drain(); err == nil {
			t.Errorf("%q was taken for an attachment", line)
		}
	}
}
