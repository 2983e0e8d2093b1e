package main

import (
	"errors"
	"os"
)

// releaseLogMode lets the group read, for a shipper of logs.
const releaseLogMode = 0o640

// releaseLog appends to a file by its name. It is opened for every record, so
// it may be renamed away and compressed at any time; releases are rare.
type releaseLog struct{ path string }

// openReleaseLog makes sure that the file can be written before there is
// anything to write.
func openReleaseLog(path string) (*releaseLog, error) {
	l := &releaseLog{path}
	_, err := l.Write(nil)
	return l, err
}

// Write appends one record.
func (l *releaseLog) Write(record []byte) (int, error) {
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, releaseLogMode)
	if err != nil {
		return 0, err
	}
	n, err := file.Write(record)
	return n, errors.Join(err, file.Close())
}
