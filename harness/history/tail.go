package history

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
)

// Tail reads a history that is still being written. It is for looking on: what
// is judged is read whole, by Read. It is not safe for concurrent use.
type Tail struct {
	path   string
	offset int64  // of what was read
	rest   []byte // the beginning of a line whose end is not there yet
	number int    // of the last whole line
}

// NewTail returns a reader of the history at path, which need not exist yet.
func NewTail(path string) *Tail { return &Tail{path: path} }

// Next returns the records that became whole since the last call, none if there
// are none. An error names the file and the line; that line is not read again.
func (t *Tail) Next() ([]Record, error) {
	file, err := os.Open(t.path)
	if err != nil {
		return nil, fmt.Errorf("following history: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(t.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("following history: %w", err)
	}
	data, err := io.ReadAll(bufio.NewReaderSize(file, bufferBytes))
	t.offset += int64(len(data))
	if err != nil {
		return nil, fmt.Errorf("following history: %w", err)
	}
	t.rest = append(t.rest, data...)
	return t.takeWhole()
}

// takeWhole decodes the lines that are whole and keeps the rest.
func (t *Tail) takeWhole() ([]Record, error) {
	var records []Record
	for {
		line, rest, ok := bytes.Cut(t.rest, []byte("\n"))
		if !ok {
			t.rest = bytes.Clone(t.rest) // lets go of what was decoded
			return records, nil
		}
		t.rest = rest
		t.number++
		r, err := decode(line)
		if err != nil {
			return records, fmt.Errorf("following history %s:%d: %w", t.path, t.number, err)
		}
		records = append(records, r)
	}
}
