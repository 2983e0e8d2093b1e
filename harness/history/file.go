package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// bufferBytes is how much a File may hold back before it writes. A killed run
// loses at most that much, and Read says that something is missing.
const bufferBytes = 64 << 10

// File is a Recorder that appends one JSON line per record to a file. It keeps
// no record in memory. The first error stays: what comes after it is dropped,
// so that the file has no hole in the middle, and Err, Sync and Close tell.
type File struct {
	mu     sync.Mutex
	file   *os.File
	out    *bufio.Writer
	lines  *json.Encoder
	stamp  stamp
	err    error
	closed bool
}

// Create opens a new history at path. It refuses to overwrite one.
func Create(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("creating history: %w", err)
	}
	return newFile(file), nil
}

func newFile(file *os.File) *File {
	f := &File{file: file, out: bufio.NewWriterSize(file, bufferBytes)}
	f.lines = json.NewEncoder(f.out)
	f.lines.SetEscapeHTML(false)
	return f
}

// Record appends r as the next line. An error is kept for Err, Sync and Close.
func (f *File) Record(r Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	r = f.stamp.mark(r)
	if f.closed {
		f.err = fmt.Errorf("recording %d: the history is closed", r.N)
		return
	}
	if err := r.validate(); err != nil {
		f.err = fmt.Errorf("recording %d: %w", r.N, err)
		return
	}
	if err := f.lines.Encode(r); err != nil {
		f.err = fmt.Errorf("recording %d: %w", r.N, err)
	}
}

// Err returns the first error of this history, or nil.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Flush hands what was recorded so far to the operating system, so that it
// survives the death of this process.
func (f *File) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flush()
}

func (f *File) flush() error {
	if f.closed {
		return f.err
	}
	// What is buffered is whole even after a record that could not be encoded.
	if err := f.out.Flush(); err != nil && f.err == nil {
		f.err = fmt.Errorf("writing history: %w", err)
	}
	return f.err
}

// Sync puts all that was recorded so far on disk.
func (f *File) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sync()
}

func (f *File) sync() error {
	if f.closed {
		return f.err
	}
	if f.flush() != nil {
		return f.err
	}
	if err := f.file.Sync(); err != nil {
		f.err = fmt.Errorf("syncing history: %w", err)
	}
	return f.err
}

// Close puts everything on disk and closes the file. It returns the first
// error of the history's whole life and may be called more than once.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.err
	}
	f.sync()
	f.closed = true
	if err := f.file.Close(); err != nil && f.err == nil {
		f.err = fmt.Errorf("closing history: %w", err)
	}
	return f.err
}

// stamp numbers records and gives them the time. Its owner holds a lock, so
// that numbers and times rise together.
type stamp struct {
	n   uint64
	now func() time.Time // nil means time.Now
}

func (s *stamp) mark(r Record) Record {
	s.n++
	r.N = s.n
	now := s.now
	if now == nil {
		now = time.Now
	}
	if r.Time.IsZero() {
		r.Time = now()
	}
	// The monotonic reading does not survive a file. Without it a record is
	// the same before and after.
	r.Time = r.Time.Round(0).UTC()
	return r
}

// validate tells whether r holds exactly one part.
func (r Record) validate() error {
	parts := 0
	for _, set := range []bool{
		r.Run != nil, r.Lane != nil, r.Op != nil, r.Attachment != nil,
		r.Write != nil, r.Audit != nil, r.Snapshot != nil, r.Gap != nil,
	} {
		if set {
			parts++
		}
	}
	if parts != 1 {
		return fmt.Errorf("a record holds %d parts where 1 is expected", parts)
	}
	return nil
}
