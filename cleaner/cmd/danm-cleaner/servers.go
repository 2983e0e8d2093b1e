package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// off is the address that turns a server off.
const off = "0"

// Limits of the two small servers.
const (
	headerTimeout   = 5 * time.Second
	shutdownTimeout = 2 * time.Second
)

// servers are the metrics and the health server.
type servers struct {
	ready atomic.Bool
	list  []*http.Server
	group sync.WaitGroup
}

// listen binds both addresses before anything else starts, so that a taken
// port is a clear error and not a replica without probes.
func listen(metricsAddress, probeAddress string, registry *prometheus.Registry) (*servers, error) {
	s := &servers{}
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	probes := http.NewServeMux()
	probes.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	probes.HandleFunc("/readyz", s.readyz)
	for _, server := range []struct {
		flag, address string
		handler       http.Handler
	}{{"--metrics-bind-address", metricsAddress, metrics}, {"--health-probe-bind-address", probeAddress, probes}} {
		if server.address == off {
			continue
		}
		if err := s.serve(server.address, server.handler); err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", server.flag, err)
		}
	}
	return s, nil
}

func (s *servers) serve(address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	s.list = append(s.list, server)
	s.group.Go(func() { _ = server.Serve(listener) }) // always ends with ErrServerClosed
	return nil
}

// readyz says 503 until the replica works or stands by for the Lease.
func (s *servers) readyz(w http.ResponseWriter, _ *http.Request) {
	if !s.ready.Load() {
		http.Error(w, "waiting for DANM's API or for the caches", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *servers) setReady() { s.ready.Store(true) }

func (s *servers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for _, server := range s.list {
		_ = server.Shutdown(ctx)
	}
	s.group.Wait()
}
