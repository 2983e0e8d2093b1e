package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// lineBytesMax bounds one line. The largest object of etcd is 1.5 MiB; a
// snapshot of the largest network is some tens of MiB.
const lineBytesMax = 128 << 20

// Read returns the records of a history file. Its errors name the file and the
// line; the records before that line are returned with them. A last line that
// was cut off, as a killed run leaves it, is replaced by a Gap record, so that
// no verdict can take the history for complete.
func Read(path string) ([]Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading history: %w", err)
	}
	defer file.Close()
	return read(file, path)
}

func read(from io.Reader, name string) ([]Record, error) {
	in := bufio.NewReaderSize(from, bufferBytes)
	var records []Record
	for number := 1; ; number++ {
		line, whole, err := readLine(in, lineBytesMax)
		if err == io.EOF {
			return records, nil
		}
		if err != nil {
			return records, fmt.Errorf("reading history %s:%d: %w", name, number, err)
		}
		r, err := decode(line)
		if err != nil && !whole {
			return append(records, cutOff(records, err)), nil
		}
		if err != nil {
			return records, fmt.Errorf("reading history %s:%d: %w", name, number, err)
		}
		records = append(records, r)
	}
}

// readLine returns the next line without its end. whole is false for a last
// line that has none. At the end of the input the error is io.EOF itself.
func readLine(in *bufio.Reader, bytesMax int) (line []byte, whole bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > bytesMax:
			return nil, false, fmt.Errorf("the line is longer than %d bytes", bytesMax)
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		}
	}
}

func decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, err
	}
	if err := r.validate(); err != nil {
		return Record{}, err
	}
	if r.Run != nil && r.Run.SchemaVersion != SchemaVersion {
		return Record{}, fmt.Errorf("schema version %d where %d is expected", r.Run.SchemaVersion, SchemaVersion)
	}
	return r, nil
}

// cutOff is the record that stands for a line that could not be finished.
func cutOff(before []Record, cause error) Record {
	gap := Record{N: 1, Gap: &Gap{Source: "history", Reason: fmt.Sprintf("the last line is cut off: %v", cause)}}
	if len(before) > 0 {
		last := before[len(before)-1]
		gap.N, gap.Time = last.N+1, last.Time
	}
	return gap
}
