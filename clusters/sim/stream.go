package sim

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// stream is the body of a watch's answer. The gate writes frames into it, one
// at a time, and the client reads them.
type stream struct {
	key      string
	event    string // the key of a delivery
	actor    *actor
	resource string
	watch    *apiserver.Watch
	parcels  *parcels
	stalled  time.Time // nothing is delivered until then
	isBroken bool      // it ends, compacted, once it is no longer stalled

	isOver atomic.Bool // closed or ended, for those who only look

	mu     sync.Mutex
	buffer []byte
	ended  error // what Read returns when the buffer is empty; nil while the watch is on
	closed bool  // by the client
	wake   chan struct{}
}

func newStream(c *call, w *apiserver.Watch, p *parcels) *stream {
	return &stream{
		key: c.key, event: "event " + c.key, actor: c.actor, resource: c.target, watch: w, parcels: p, wake: make(chan struct{}, 1),
	}
}

// Read implements io.Reader for the client.
func (s *stream) Read(p []byte) (int, error) {
	for {
		n, err := s.read(p)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-s.wake:
		case <-s.actor.dead:
			return 0, errDead
		}
	}
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	n := copy(p, s.buffer)
	s.buffer = s.buffer[n:]
	if n == 0 {
		return 0, s.ended
	}
	return n, nil
}

// Close implements io.Closer for the client, which may be reading meanwhile.
func (s *stream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.isOver.Store(true)
	s.notify()
	return nil
}

func (s *stream) isOpen() bool { return !s.isOver.Load() && !s.actor.isDead.Load() }

// push hands a frame to the client.
func (s *stream) push(frame []byte) {
	s.mu.Lock()
	s.buffer = append(s.buffer, frame...)
	s.mu.Unlock()
	s.notify()
}

// bytes is what goes over the wire.
func (s *stream) bytes(f apiserver.Frame) []byte {
	if s.watch.ContentType == apiserver.ContentObjects {
		return s.parcels.sendFrame(f)
	}
	return f.Bytes
}

// deliver hands the next frame to the client. A frame that says that the watch
// is over is the last.
func (s *stream) deliver() {
	if frame, ok := s.watch.Next(); ok {
		s.push(s.bytes(frame))
	}
	if s.watch.IsClosed() {
		s.end(io.EOF)
	}
}

// end lets the client read what is left, and then err.
func (s *stream) end(err error) {
	s.mu.Lock()
	s.ended = err
	s.mu.Unlock()
	s.isOver.Store(true)
	s.notify()
}

func (s *stream) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
