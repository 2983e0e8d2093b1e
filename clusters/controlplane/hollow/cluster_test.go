package hollow_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
)

// The tests of this package run against a real etcd and kube-apiserver, and
// nothing else: the pods are bound by the tests themselves, so that neither a
// scheduler nor a controller acts in between. Package controlplane is not used
// for that reason, and because it is built on this one.

const (
	readyTimeout = 60 * time.Second
	pollInterval = 20 * time.Millisecond
)

// testUsers may do everything; their names are for reading failures.
var testUsers = []string{"danm-harness", "system:node:n1", "system:node:n2"}

type apiServer struct {
	host string
	core kubernetes.Interface
	dyn  dynamic.Interface
}

var server *apiServer // nil if the programs are not there

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder := os.Getenv("KUBERNETES_BIN_DIR")
	if folder == "" {
		return m.Run()
	}
	temp, err := os.MkdirTemp("", "hollow-test-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(temp)
	var programs []*program
	defer func() {
		for _, p := range programs {
			p.kill()
		}
	}()
	if server, err = startServer(folder, temp, &programs); err != nil {
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "starting etcd and kube-apiserver:", err)
	return 1
}

func needServer(t *testing.T) *apiServer {
	t.Helper()
	if server == nil {
		t.Skip("KUBERNETES_BIN_DIR names no folder with etcd and kube-apiserver")
	}
	return server
}

type program struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func start(log, path string, args ...string) (*program, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &program{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	return p, nil
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func startServer(folder, temp string, programs *[]*program) (*apiServer, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	etcdURL, peerURL := loopback("http", ports[0]), loopback("http", ports[1])
	etcd, err := start(filepath.Join(temp, "etcd.log"), filepath.Join(folder, "etcd"),
		"--data-dir", filepath.Join(temp, "etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster", "default="+peerURL)
	if err != nil {
		return nil, err
	}
	*programs = append(*programs, etcd)
	key, tokens := filepath.Join(temp, "key.pem"), filepath.Join(temp, "tokens.csv")
	if err := errors.Join(writeKey(key), writeTokens(tokens)); err != nil {
		return nil, err
	}
	apiserver, err := start(filepath.Join(temp, "apiserver.log"), filepath.Join(folder, "kube-apiserver"),
		"--etcd-servers", etcdURL, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(ports[2]),
		"--cert-dir", temp, "--token-auth-file", tokens, "--authorization-mode", "AlwaysAllow",
		"--disable-admission-plugins", "ServiceAccount", "--service-cluster-ip-range", "10.96.0.0/16",
		"--service-account-issuer", "https://hollow.invalid", "--service-account-key-file", key, "--service-account-signing-key-file", key)
	if err != nil {
		return nil, err
	}
	*programs = append(*programs, apiserver)
	return connect(loopback("https", ports[2]), apiserver)
}

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

func writeTokens(path string) error {
	var b strings.Builder
	for _, user := range testUsers {
		fmt.Fprintf(&b, "token-of-%s,%s,%s,system:masters\n", user, user, user)
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

func connect(host string, apiserver *program) (*apiServer, error) {
	s := &apiServer{host: host}
	var err error
	if s.core, err = kubernetes.NewForConfig(s.config("danm-harness")); err != nil {
		return nil, err
	}
	if s.dyn, err = dynamic.NewForConfig(s.config("danm-harness")); err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(context.Background(), pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-apiserver.done:
			tail, _ := os.ReadFile(apiserver.log)
			return false, fmt.Errorf("kube-apiserver ended: %s", tail)
		default:
		}
		_, err := s.core.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
	if err != nil {
		return nil, err
	}
	return s, s.installCRDs()
}

func (s *apiServer) config(user string) *rest.Config {
	return &rest.Config{
		Host: s.host, BearerToken: "token-of-" + user, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// installCRDs proves that a real API server accepts the CRDs of both groups,
// and waits until it serves them.
func (s *apiServer) installCRDs() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	definitions := s.dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, g := range danm.Groups() {
		crds, err := deploy.CRDs(g)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating CRD %s: %w", crd.GetName(), err)
			}
		}
	}
	// Side by side, because a CRD that is not served yet answers "retry after
	// one second", and the client waits for that long.
	var group errgroup.Group
	for _, g := range danm.Groups() {
		for _, plural := range []string{danm.EndpointResource, danm.DanmNetResource, danm.TenantNetworkResource, danm.ClusterNetworkResource, danm.ReservedIPResource} {
			group.Go(func() error { return s.untilServed(ctx, g.Resource(plural)) })
		}
	}
	return group.Wait()
}

func (s *apiServer) untilServed(ctx context.Context, r schema.GroupVersionResource) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		_, err := s.dyn.Resource(r).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s.%s: %w", r.Resource, r.Group, err)
	}
	return nil
}

// countingTransport notes the requests of a client.
type countingTransport struct {
	next http.RoundTripper
	note func(*http.Request)
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.note(r)
	return c.next.RoundTrip(r)
}
