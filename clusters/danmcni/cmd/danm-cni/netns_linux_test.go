package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni/internal/memoryapi"
)

// dialTimeout is long for a loaded machine; a packet takes microseconds.
const dialTimeout = 10 * time.Second

// programs builds danm-cni and the reference plugins, once for all tests.
var programs = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(workDir, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for _, build := range []struct{ dir, pkg string }{{".", "."}, {"../../../tools/cni-plugins", "tool"}} {
		cmd := exec.Command("go", "build", "-trimpath", "-o", dir+"/", build.pkg)
		cmd.Dir = build.dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s in %s: %w\n%s", build.pkg, build.dir, err, out)
		}
	}
	return dir, nil
})

// workDir outlives a single test, as the programs do.
var workDir string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "danm-cni-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workDir = dir
	return m.Run()
}

// netnsCount makes names unique within the process; its id does between them.
var netnsCount atomic.Int64

// newNetns makes a network namespace with loopback, or skips the test where
// that is not possible. It and all links in it go with the test.
func newNetns(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: there is no ip command; install iproute2")
	}
	name := fmt.Sprintf("danmcni-%d-%d", os.Getpid(), netnsCount.Add(1))
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("skipped: ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() { deleteNetns(t, name) })
	ip(t, "-n", name, "link", "set", "lo", "up")
	return name
}

// deleteNetns removes a namespace; one that is gone is fine.
func deleteNetns(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(netnsPath(name)); err == nil {
		ip(t, "netns", "del", name)
	}
}

func netnsPath(name string) string { return "/run/netns/" + name }

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inNetns runs do on a thread in the namespace; processes started there are in
// it too. The thread ends with it, so nothing else ever runs there.
func inNetns(name string, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- enterAndDo(name, do)
	}()
	return <-done
}

func enterAndDo(name string, do func() error) error {
	file, err := os.Open(netnsPath(name))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering namespace %s: %w", name, err)
	}
	return do()
}

// listenIn opens a socket in the namespace. It stays there whoever uses it.
func listenIn(t *testing.T, name, address string) net.Listener {
	t.Helper()
	var l net.Listener
	err := inNetns(name, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatalf("listening on %s in %s: %v", address, name, err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serveAPI serves the API on the node's own loopback.
func serveAPI(t *testing.T, name string, api *memoryapi.API) (url string) {
	t.Helper()
	l := listenIn(t, name, "127.0.0.1:0")
	server := &http.Server{Handler: api}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // it ends by Close
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return "http://" + l.Addr().String()
}

// wantReachable dials to, in one namespace, from another.
func wantReachable(t *testing.T, from, in string, to netip.Addr) {
	t.Helper()
	l := listenIn(t, in, net.JoinHostPort(to.String(), "0"))
	var serving sync.WaitGroup
	serving.Go(func() {
		if c, err := l.Accept(); err == nil {
			fmt.Fprintf(c, "%s\n", in)
			c.Close()
		}
	})
	err := inNetns(from, func() error { return greet(l.Addr().String(), in) })
	l.Close()
	serving.Wait()
	if err != nil {
		t.Errorf("reaching %s in %s from %s: %v", to, in, from, err)
	}
}

// greet makes sure that the one at the other end is the one that was meant.
func greet(address, want string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(line); got != want {
		return fmt.Errorf("%q answered", got)
	}
	return nil
}
