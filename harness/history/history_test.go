package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC)

// oneOfEach returns records that set every field of every part.
func oneOfEach() []Record {
	return []Record{
		{Run: &Run{SchemaVersion, "id", "node-shutdown", "sim", 1 << 63, "danm.io", "cleaner", "system:node:", true, &Observed{[]string{"danm-cleaner"}}}},
		{Lane: &Lane{"lane-0", 2, "ns", "DanmNet", "net", true, true, "ss", 5, []string{"n1", "n2"}}},
		{Op: &Op{"lane-0", Info, "fail-node", "lane-0", 1, 2, "n1", true, "cut\nshort", "<note>"}},
		{Attachment: &Attachment{Attached, "sandbox", "n1", "ns", "pod", "uid", true, []AttachedInterface{
			{"eth0", "ep", "ep-uid", "DanmNet", "net", []string{"10.0.0.1", "2001:db8::1"}},
		}}},
		{Write: &Write{1 << 60, Deleted, true, "danmeps", "ns", "ep", "ep-uid", json.RawMessage(`{"spec":{"Pod":"a<b"}}`), map[string]string{"spec": "danm"}}},
		{Audit: &Audit{"user", "patch", "danmnets", "status", "danm.io", "ns", "net", "uid", 9, 200, true, noon, noon.Add(time.Second)}},
		{Snapshot: &Snapshot{
			"lane-0", 2, 3, true, "nothing", time.Second,
			[]SnapshotPod{{"ns", "pod", "uid", "n1", "Running", true, true, 2}},
			[]SnapshotEndpoint{{"ns", "ep", "ep-uid", "pod", "uid", "cid", "eth0", "n1", []string{"10.0.0.1"}, "owner"}},
			[]SnapshotBit{{4, 1, "10.0.0.1"}}, []string{"10.0.0.2"},
			&SnapshotRuntime{[]SnapshotSandbox{{"sandbox", "n1", "pod", "uid"}}},
		}},
		{Gap: &Gap{"audit", "rotated away"}},
	}
}

func pathFor(t testing.TB) string { return filepath.Join(t.TempDir(), "history.jsonl") }

// record writes records to a new file and returns its path.
func record(t testing.TB, records ...Record) string {
	t.Helper()
	path := pathFor(t)
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		f.Record(r)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatIsRecordedIsRead(t *testing.T) {
	got, err := Read(record(t, oneOfEach()...))
	if err != nil {
		t.Fatal(err)
	}
	want := oneOfEach()
	for i := range want {
		want[i].N = uint64(i + 1)
		if got[i].Time.IsZero() || i > 0 && got[i].Time.Before(got[i-1].Time) {
			t.Errorf("record %d has time %v", i+1, got[i].Time)
		}
		want[i].Time = got[i].Time
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong records (-recorded +read):\n%s", diff)
	}
}

func TestAGivenTimeIsKept(t *testing.T) {
	got, err := Read(record(t, Record{Time: noon.In(time.FixedZone("x", 3600)), Gap: &Gap{}}))
	if err != nil || !got[0].Time.Equal(noon) {
		t.Errorf("time is %v (%v), want %v", got[0].Time, err, noon)
	}
}

func TestMemoryAndFileAgree(t *testing.T) {
	memory := &Memory{Now: func() time.Time { return noon }}
	for _, r := range oneOfEach() {
		memory.Record(r)
	}
	got, err := Read(record(t, memory.Records()...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(memory.Records(), got); diff != "" {
		t.Errorf("wrong records (-memory +file):\n%s", diff)
	}
}

func TestConcurrentRecordersGiveOneOrder(t *testing.T) {
	const writers, each = 8, 200
	path := pathFor(t)
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	memory := &Memory{}
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range each {
				f.Record(Record{Gap: &Gap{Source: "test"}})
				memory.Record(Record{Gap: &Gap{Source: "test"}})
			}
		})
	}
	group.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	fromFile, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, records := range [][]Record{fromFile, memory.Records()} {
		if len(records) != writers*each {
			t.Fatalf("%d records, want %d", len(records), writers*each)
		}
		for i, r := range records {
			if r.N != uint64(i+1) || i > 0 && r.Time.Before(records[i-1].Time) {
				t.Fatalf("record %d has number %d and time %v", i+1, r.N, r.Time)
			}
		}
	}
}

func TestFlushAndSyncMakeRecordsReadable(t *testing.T) {
	for name, push := range map[string]func(*File) error{"flush": (*File).Flush, "sync": (*File).Sync} {
		t.Run(name, func(t *testing.T) {
			path := pathFor(t)
			f, err := Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			f.Record(Record{Gap: &Gap{}})
			if err := push(f); err != nil {
				t.Fatal(err)
			}
			if got, err := Read(path); err != nil || len(got) != 1 {
				t.Errorf("read %d records (%v), want 1", len(got), err)
			}
		})
	}
}

func TestAFullDiskIsNeverLost(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	f := newFile(full)
	f.Record(Record{Gap: &Gap{Reason: strings.Repeat("x", 2*bufferBytes)}})
	f.Record(Record{Gap: &Gap{}})
	for name, got := range map[string]error{"Err": f.Err(), "Flush": f.Flush(), "Sync": f.Sync(), "Close": f.Close(), "Close again": f.Close()} {
		if !errors.Is(got, syscall.ENOSPC) {
			t.Errorf("%s returns %v, want that the disk is full", name, got)
		}
	}
}

func TestAFullDiskIsFoundWhenTheBufferIsWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	f := newFile(full)
	f.Record(Record{Gap: &Gap{}})
	if err := f.Err(); err != nil {
		t.Fatalf("a small record is buffered, but Err is %v", err)
	}
	if err := f.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close returns %v, want that the disk is full", err)
	}
}

func TestWhatCannotBeRecordedIsAnError(t *testing.T) {
	for name, r := range map[string]Record{
		"no part":   {},
		"two parts": {Gap: &Gap{}, Lane: &Lane{}},
		"bad JSON":  {Write: &Write{Object: json.RawMessage("{")}},
	} {
		t.Run(name, func(t *testing.T) {
			path := pathFor(t)
			f, err := Create(path)
			if err != nil {
				t.Fatal(err)
			}
			f.Record(Record{Gap: &Gap{}})
			f.Record(r)
			f.Record(Record{Gap: &Gap{}})
			if err := f.Close(); err == nil || !strings.Contains(err.Error(), "recording 2:") {
				t.Errorf("Close returns %v, want that record 2 failed", err)
			}
			if got, err := Read(path); err != nil || len(got) != 1 {
				t.Errorf("read %d records (%v), want the 1 before the error", len(got), err)
			}
		})
	}
}

func TestRecordingAfterCloseIsAnError(t *testing.T) {
	f, err := Create(pathFor(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.Record(Record{Gap: &Gap{}})
	if f.Err() == nil {
		t.Error("a record after Close is lost without an error")
	}
}

func TestCreateOverwritesNothing(t *testing.T) {
	path := record(t, oneOfEach()...)
	if _, err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("Create returns %v, want that the file exists", err)
	}
}

func TestACutOffLastLineIsAGap(t *testing.T) {
	whole, err := os.ReadFile(record(t, oneOfEach()...))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Count(whole, []byte("\n"))
	lastLine := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := lastLine + 1; cut < len(whole)-1; cut++ {
		got, err := read(bytes.NewReader(whole[:cut]), "h")
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		last := got[len(got)-1]
		if len(got) != lines || last.Gap == nil || last.Gap.Source != "history" || last.N != uint64(lines) || last.Time.IsZero() {
			t.Fatalf("cut at %d: %d records, the last is %+v", cut, len(got), last)
		}
	}
}

func TestAWholeLastLineNeedsNoEnd(t *testing.T) {
	got, err := read(strings.NewReader(`{"n":1,"gap":{"source":"s"}}`), "h")
	if err != nil || len(got) != 1 || got[0].Gap.Source != "s" {
		t.Errorf("read %+v (%v)", got, err)
	}
}

func TestReadNamesFileAndLine(t *testing.T) {
	const good = `{"n":1,"gap":{}}` + "\n"
	for name, text := range map[string]string{
		"not JSON":           good + "x\n" + good,
		"an empty line":      good + "\n" + good,
		"no part":            good + "{}\n",
		"two parts":          good + `{"gap":{},"op":{}}` + "\n",
		"another schema":     good + `{"run":{"schemaVersion":2}}` + "\n",
		"a field of no type": good + `{"n":"one","gap":{}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(strings.NewReader(text), "some/history.jsonl")
			if err == nil || !strings.Contains(err.Error(), "some/history.jsonl:2: ") {
				t.Errorf("error is %v, want one that names line 2", err)
			}
		})
	}
	if _, err := Read(pathFor(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want that the file does not exist", err)
	}
}

func TestALongLineIsRead(t *testing.T) {
	long := strings.Repeat("x", 10*bufferBytes)
	got, err := Read(record(t, Record{Gap: &Gap{Reason: long}}, Record{Gap: &Gap{}}))
	if err != nil || len(got) != 2 || got[0].Gap.Reason != long {
		t.Errorf("read %d records (%v)", len(got), err)
	}
}

func TestAnEndlessLineIsAnError(t *testing.T) {
	const bytesMax = 1 << 20
	_, _, err := readLine(bufio.NewReader(endless{}), bytesMax)
	if err == nil || !strings.Contains(err.Error(), "the line is longer") {
		t.Errorf("error is %v, want that the line is too long", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// FuzzRead: whatever a file holds, it is refused or it reads the same after it
// was recorded again.
func FuzzRead(f *testing.F) {
	whole, err := os.ReadFile(record(f, oneOfEach()...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte("{}\n\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := read(bytes.NewReader(data), "h")
		if err != nil {
			return
		}
		var out bytes.Buffer
		lines := json.NewEncoder(&out)
		for _, r := range first {
			if err := lines.Encode(r); err != nil {
				return // a time that JSON can read but not write
			}
		}
		second, err := read(&out, "h")
		if err != nil || len(second) != len(first) {
			t.Fatalf("read %d records, then %d: %v", len(first), len(second), err)
		}
	})
}
