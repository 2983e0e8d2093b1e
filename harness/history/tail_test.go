package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestATailReadsEveryRecordOnceAsItBecomesWhole(t *testing.T) {
	path := record(t, oneOfEach()...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	growing := filepath.Join(t.TempDir(), "history.jsonl")
	tail := NewTail(growing)
	if _, err := tail.Next(); err == nil {
		t.Error("a history that does not exist gave no error")
	}
	var got []Record
	const piece = 37 // cuts lines at odd places
	for end := piece; ; end += piece {
		if err := os.WriteFile(growing, data[:min(end, len(data))], 0o644); err != nil {
			t.Fatal(err)
		}
		more, err := tail.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, more...)
		if end >= len(data) {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-read at once +followed):\n%s", diff)
	}
}

func TestATailNamesTheBadLineAndGoesOnAfterIt(t *testing.T) {
	path := record(t, oneOfEach()...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	broken := lines[0] + "no record\n" + lines[1]
	if err := os.WriteFile(path, []byte(broken), 0o644); err != nil {
		t.Fatal(err)
	}
	tail := NewTail(path)
	first, err := tail.Next()
	if len(first) != 1 || err == nil || !strings.Contains(err.Error(), path+":2: ") {
		t.Errorf("got %d records and %v", len(first), err)
	}
	second, err := tail.Next()
	if len(second) != 1 || err != nil {
		t.Errorf("after the bad line: got %d records and %v", len(second), err)
	}
}

func TestReadReturnsWhatIsBeforeTheBadLine(t *testing.T) {
	path := record(t, oneOfEach()...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	if err := os.WriteFile(path, []byte(lines[0]+lines[1]+"no record\n"+lines[2]), 0o644); err != nil {
		t.Fatal(err)
	}
	records, err := Read(path)
	if len(records) != 2 || err == nil || !strings.Contains(err.Error(), ":3: ") {
		t.Errorf("got %d records and %v", len(records), err)
	}
}
