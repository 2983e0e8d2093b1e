package netplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// recorded returns what the record file holds.
func (b *bench) recorded() []history.Attachment {
	b.t.Helper()
	data, err := os.ReadFile(b.config["recordFile"].(string))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	var all []history.Attachment
	for line := range bytes.Lines(data) {
		var r history.Record
		if err := json.Unmarshal(line, &r); err != nil || r.Attachment == nil || r.Time.IsZero() {
			b.t.Fatalf("line %s, error %v", line, err)
		}
		all = append(all, *r.Attachment)
	}
	return all
}

func newRecordingBench(t *testing.T, annotation string) *bench {
	b := newBench(t, annotation)
	b.config["recordFile"] = filepath.Join(b.dir, "n1.jsonl")
	return b
}

func TestAnAttachmentIsRecordedWhenItIsMadeAndBeforeItIsUndone(t *testing.T) {
	b := newRecordingBench(t, `[{"network":"net","ip":"dynamic"}]`)
	b.plugins.onCall = func(_ context.Context, call string, _ []byte) error {
		if want := map[string]int{"ADD bridge eth0": 0, "DEL bridge eth0": 2}[call]; len(b.recorded()) != want {
			return errors.New("the record comes at the wrong time")
		}
		return nil
	}
	b.config["variant"] = "careful" // which swallows no error
	b.must((*call).add)
	b.must((*call).del)
	pod := history.Attachment{ID: "cid", Node: "n1", Namespace: "ns", Pod: "web-0", PodUID: "uid-of-web-0"}
	attached, detaching := pod, pod
	attached.Event, detaching.Event = history.Attached, history.Detaching
	attached.Interfaces = []history.AttachedInterface{{Name: "eth0", NetworkKind: "DanmNet", Network: "net", Addresses: []string{"10.10.10.1"}}}
	got := b.recorded()
	random := cmpopts.IgnoreFields(history.AttachedInterface{}, "Endpoint", "EndpointUID")
	if diff := cmp.Diff([]history.Attachment{attached, detaching}, got, random); diff != "" {
		t.Fatalf("records (-want +got):\n%s", diff)
	}
	if face := got[0].Interfaces[0]; face.Endpoint == "" || face.EndpointUID == "" {
		t.Errorf("the record names no endpoint: %+v", face)
	}
}

func TestAnAddThatFailsIsNeverRecordedAsAttached(t *testing.T) {
	b := newRecordingBench(t, two)
	b.plugins.address = "10.10.10.77/24"
	if _, err := b.run((*call).add); err == nil {
		t.Fatal("ADD succeeded")
	}
	for _, a := range b.recorded() {
		if a.Event != history.Detaching {
			t.Errorf("recorded %+v", a)
		}
	}
}

func TestOrdinaryPodsAreNotRecorded(t *testing.T) {
	b := newRecordingBench(t, "[]")
	b.must((*call).add)
	b.must((*call).del)
	if got := b.recorded(); len(got) > 0 {
		t.Errorf("recorded %+v", got)
	}
}

func TestAnAddThatCannotBeRecordedIsRolledBack(t *testing.T) {
	b := newRecordingBench(t, two)
	file := b.config["recordFile"]
	b.config["recordFile"] = b.dir // a folder
	_, err := b.run((*call).add)
	wantCode(t, err, types.ErrIOFailure)
	b.config["recordFile"] = file
	b.must((*call).del)
	b.wantNothing()
}
