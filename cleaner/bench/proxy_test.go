package bench_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// proxy stands between a cleaner that runs as a process of its own and the API
// server. It counts requests, and can kill the cleaner at one of them.
type proxy struct {
	*httptest.Server
	kubeconfig string

	mu    sync.Mutex
	seen  map[string]int // by verb and kind of path
	total int
	// killAt is the number of the request at which to kill, 0 for none; before
	// the request reaches the server, or after the answer is there.
	killAt     int
	killBefore bool
	kill       func()
}

func newProxy(t *testing.T, c *controlplane.Cluster) *proxy {
	t.Helper()
	config, err := c.RESTConfig(clusters.UserCleaner)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{seen: map[string]int{}}
	p.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // watches must not be buffered
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			kill := p.count(r)
			if kill != nil && p.killBefore {
				kill()
				return nil, fmt.Errorf("the cleaner was killed before %s %s", r.Method, r.URL.Path)
			}
			response, err := transport.RoundTrip(r)
			if kill != nil {
				kill()
			}
			return response, err
		}),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(p.CloseClientConnections)
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	k := clientcmdapi.NewConfig()
	k.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.URL}
	k.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	k.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*k, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

// count notes a request and returns what to kill at it, if anything.
func (p *proxy) count(r *http.Request) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	verb := r.Method
	if r.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	what := "other"
	for _, part := range []string{"leases", "danmeps", "danmnets", "pods", "nodes", "events"} {
		if strings.Contains(r.URL.Path, "/"+part) {
			what = part
		}
	}
	p.seen[verb+" "+what]++
	p.total++
	if p.killAt == p.total {
		return p.kill
	}
	return nil
}

func (p *proxy) requests() (total int, seen map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen = map[string]int{}
	for k, v := range p.seen {
		seen[k] = v
	}
	return p.total, seen
}

// victim is a cleaner process behind a proxy.
type victim struct {
	*exec.Cmd
	ended chan struct{}
	ready chan struct{}
	log   *synced
}

// deployedEnvironment returns what the Deployment sets in the environment.
func deployedEnvironment(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../deploy/base/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(data, &d); err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, v := range d.Spec.Template.Spec.Containers[0].Env {
		if v.ValueFrom == nil {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

// startVictim starts the shipped program, as it is deployed.
func startVictim(t *testing.T, program string, p *proxy, args ...string) *victim {
	t.Helper()
	v := &victim{ended: make(chan struct{}), ready: make(chan struct{}), log: &synced{}}
	v.Cmd = exec.Command(program, append([]string{"run", "--kubeconfig", p.kubeconfig,
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0"}, args...)...)
	v.Env = append(v.Environ(), deployedEnvironment(t)...)
	stderr, err := v.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	p.mu.Lock()
	p.kill = func() { <-started; _ = v.Process.Kill() }
	p.mu.Unlock()
	if err := v.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	go func() {
		defer close(v.ended)
		isReady := false
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			v.log.add(lines.Text())
			if !isReady && strings.Contains(lines.Text(), "caches synced") {
				isReady = true
				close(v.ready)
			}
		}
		_ = v.Wait()
	}()
	t.Cleanup(func() { v.stop() })
	return v
}

// stop ends the process at once, should it still run, and waits for its end.
func (v *victim) stop() {
	_ = v.Process.Kill()
	<-v.ended
}

// synced collects the lines of a log.
type synced struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *synced) add(line string) { s.mu.Lock(); defer s.mu.Unlock(); s.buf.WriteString(line + "\n") }

func (s *synced) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.buf.String() }

// residentMiB reads a figure of /proc/PID/status.
func (v *victim) residentMiB(t *testing.T, field string) float64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatalf("no %s in the process status", field)
	return 0
}

// cpu returns the processor time spent so far. The kernel counts it in
// hundredths of a second.
func (v *victim) cpu(t *testing.T) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
