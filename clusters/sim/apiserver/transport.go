package apiserver

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Direct is a server that any number of clients use at once, each request
// being answered as soon as it comes.
type Direct struct {
	mu     sync.Mutex
	server *Server
	change chan struct{} // closed at the next commit
}

// NewDirect returns a Direct over s, which nobody else may use from now on.
func NewDirect(s *Server) *Direct {
	d := &Direct{server: s, change: make(chan struct{})}
	s.OnCommit(func(Commit) {
		close(d.change)
		d.change = make(chan struct{})
	})
	return d
}

// Use runs f while no request is being answered.
func (d *Direct) Use(f func(*Server)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.server)
}

// RESTConfig returns access as that user.
func (d *Direct) RESTConfig(user string) *rest.Config {
	return &rest.Config{Host: "http://sim", Transport: d.RoundTripper(user), QPS: -1}
}

// RoundTripper answers the requests of one user.
func (d *Direct) RoundTripper(user string) http.RoundTripper { return direct{d, user} }

type direct struct {
	*Direct
	user string
}

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	request, err := FromHTTP(r, d.user)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !request.IsWatch() {
		return d.server.Serve(request).ToHTTP(r), nil
	}
	w, refused := d.server.Watch(request)
	if refused != nil {
		return refused.ToHTTP(r), nil
	}
	return w.ToHTTP(r, d.stream(r, w)), nil
}

// ToHTTP is the response that begins a watch whose frames come by body.
func (w *Watch) ToHTTP(r *http.Request, body io.ReadCloser) *http.Response {
	return newHTTPResponse(r, http.StatusOK, w.ContentType, body)
}

// lastBookmark is how long before the end that the client asked for a watch
// gets its last bookmark.
const lastBookmark = 2 * time.Second

// stream is the body of a watch.
type stream struct {
	*Direct
	ctx      context.Context
	cancel   context.CancelFunc
	watch    *Watch
	bookmark <-chan time.Time // nil: never
	rest     []byte
}

func (d *Direct) stream(r *http.Request, w *Watch) *stream {
	s := &stream{Direct: d, watch: w}
	s.ctx, s.cancel = context.WithCancel(r.Context())
	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		limit := time.Duration(seconds) * time.Second
		s.ctx, s.cancel = context.WithTimeout(r.Context(), limit)
		s.bookmark = time.After(max(limit-lastBookmark, 0))
	}
	return s
}

// Read returns the next bytes of the watch, when there are any.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		change, isOver := s.advance()
		switch {
		case len(s.rest) > 0:
		case isOver:
			return 0, io.EOF
		default:
			s.await(change)
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *stream) advance() (change <-chan struct{}, isOver bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, true
	}
	frame, _ := s.watch.Next()
	s.rest = frame.Bytes
	return s.change, s.watch.IsClosed()
}

func (s *stream) await(change <-chan struct{}) {
	select {
	case <-change:
	case <-s.ctx.Done():
	case <-s.bookmark:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watch.Bookmark()
	}
}

// Close ends the watch.
func (s *stream) Close() error {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.Close()
	return nil
}
