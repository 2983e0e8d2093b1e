package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/danm-chaos/danm-chaos/reports"
)

// headerTimeout bounds how long a client may take to ask.
const headerTimeout = 10 * time.Second

// Server serves the growing report and the metrics of one run.
type Server struct {
	follower *Follower
	listener net.Listener
	http     *http.Server
	done     chan error
}

// Serve begins to serve at an address such as ":8080". Without a host it is
// reached from this machine only: a report tells names of pods and nodes.
func Serve(address string, f *Follower) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("serving the report: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("serving the report: %w", err)
	}
	s := &Server{follower: f, listener: listener, done: make(chan error, 1)}
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: headerTimeout}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// URL is where the report is.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/" }

// Close ends the server. Answers under way are finished if ctx allows.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("ending the report's server: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /state", s.state)
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.GathererFunc(s.gather), promhttp.HandlerOpts{}))
	return mux
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	body, err := s.follower.page()
	if err != nil {
		http.Error(w, "rendering the report: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, "text/html; charset=utf-8", body)
}

func (s *Server) state(w http.ResponseWriter, _ *http.Request) {
	answer(w, "text/plain; charset=utf-8", []byte(s.follower.state()))
}

func answer(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Write(body) // a reader who is gone is no trouble of ours
}

// gather makes the metrics of the run as it is now.
func (s *Server) gather() ([]*dto.MetricFamily, error) {
	result, counts := s.follower.snapshot()
	registry := reports.NewRegistry(result)
	for name, n := range map[string]int{"pods": counts.Pods, "endpoints": counts.Endpoints, "allocated_bits": counts.Bits} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "danm_chaos", Name: name, Help: "Of all lanes together, now."})
		g.Set(float64(n))
		if err := registry.Register(g); err != nil {
			return nil, err
		}
	}
	return registry.Gather()
}
