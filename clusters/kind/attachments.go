package kind

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

const (
	// attachmentsInterval is how often the files of the nodes are looked at.
	attachmentsInterval = 50 * time.Millisecond
	attachmentsSource   = "attachments"
	attachmentsSuffix   = ".jsonl"
)

// attachments follows what DANM's plugin on each node writes down of the
// sandboxes that it attaches and detaches, and knows which are live.
type attachments struct {
	folder   string // with a file for each node, named after it
	recorder history.Recorder

	mu    sync.Mutex // one reader at a time, so records keep each file's order
	files map[string]*attachmentFile

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// attachmentFile is the file of one node.
type attachmentFile struct {
	file    *os.File
	reader  *bufio.Reader
	partial []byte                         // the begin of a line whose end is not written yet
	live    map[string]*history.Attachment // by container ID
}

func followAttachments(folder string, recorder history.Recorder) *attachments {
	ctx, cancel := context.WithCancel(context.Background())
	a := &attachments{folder: folder, recorder: recorder, files: map[string]*attachmentFile{}, stop: cancel}
	a.stopped.Go(func() { a.follow(ctx) })
	return a
}

func (a *attachments) follow(ctx context.Context) {
	ticker := time.NewTicker(attachmentsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := a.drain(); err != nil {
			a.gap(err)
			return
		}
	}
}

func (a *attachments) gap(err error) {
	a.recorder.Record(history.Record{Gap: &history.Gap{Source: attachmentsSource, Reason: err.Error()}})
}

// drain records everything that is in the files now.
func (a *attachments) drain() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drainLocked()
}

func (a *attachments) drainLocked() error {
	paths, err := filepath.Glob(filepath.Join(a.folder, "*"+attachmentsSuffix)) // sorted
	if err != nil {
		return fmt.Errorf("listing attachments: %w", err)
	}
	for _, path := range paths {
		file, err := a.open(path)
		if err != nil {
			return err
		}
		if err := a.read(file); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
	}
	return nil
}

func (a *attachments) open(path string) (*attachmentFile, error) {
	if known := a.files[path]; known != nil {
		return known, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening attachments: %w", err)
	}
	a.files[path] = &attachmentFile{file: file, reader: bufio.NewReader(file), live: map[string]*history.Attachment{}}
	return a.files[path], nil
}

func (a *attachments) read(f *attachmentFile) error {
	for {
		chunk, err := f.reader.ReadBytes('\n')
		f.partial = append(f.partial, chunk...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var r history.Record
		if err := json.Unmarshal(bytes.TrimSpace(f.partial), &r); err != nil {
			return err
		}
		if r.Attachment == nil {
			return errors.New("a line is no attachment")
		}
		f.partial = f.partial[:0]
		f.note(r.Attachment)
		// With the time of the plugin, which runs by the same clock as we do.
		a.recorder.Record(history.Record{Time: r.Time, Attachment: r.Attachment})
	}
}

func (f *attachmentFile) note(a *history.Attachment) {
	if a.Event == history.Attached {
		f.live[a.ID] = a
		return
	}
	delete(f.live, a.ID)
}

// lose records what died with a node that has no power any more: nothing on it
// writes, so what its file holds is all there is.
func (a *attachments) lose(node string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.drainLocked(); err != nil {
		return err
	}
	file := a.files[filepath.Join(a.folder, node+attachmentsSuffix)]
	if file == nil {
		return nil // nothing was ever attached there
	}
	for _, id := range slices.Sorted(maps.Keys(file.live)) {
		was := file.live[id]
		a.recorder.Record(history.Record{Attachment: &history.Attachment{
			Event: history.Lost, ID: id, Node: node, Namespace: was.Namespace, Pod: was.Pod, PodUID: was.PodUID,
		}})
	}
	file.live = map[string]*history.Attachment{}
	return nil
}

// close records the rest. The nodes must be gone.
func (a *attachments) close() error {
	a.stop()
	a.stopped.Wait()
	err := a.drain()
	for _, path := range slices.Sorted(maps.Keys(a.files)) {
		f := a.files[path]
		if len(f.partial) > 0 {
			a.gap(fmt.Errorf("%s ends within a line", path))
		}
		err = errors.Join(err, f.file.Close())
	}
	return err
}
