package history

import (
	"slices"
	"sync"
	"time"
)

// Memory is a Recorder that keeps its records, for tests and short runs. The
// zero value is ready to use.
type Memory struct {
	Now func() time.Time // nil means time.Now; set it before the first Record

	mu      sync.Mutex
	stamp   stamp
	records []Record
}

// Record appends r.
func (m *Memory) Record(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stamp.now = m.Now
	m.records = append(m.records, m.stamp.mark(r))
}

// Records returns a copy of what was recorded so far, in order.
func (m *Memory) Records() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}
