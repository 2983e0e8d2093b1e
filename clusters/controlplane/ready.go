package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// probeTimeout bounds one question whether a program is ready.
const probeTimeout = 2 * time.Second

// choosePorts finds ports that are free now. They are held all at once while
// choosing, so that none comes out twice.
func choosePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.etcdClient, &p.etcdPeer, &p.apiserver, &p.controllerManager, &p.scheduler} {
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return p, fmt.Errorf("choosing a loopback port: %w", err)
		}
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// probe asks a program whether it is ready.
type probe func(ctx context.Context) error

// httpProbe is ready when the answer is 200. The user may be empty.
func httpProbe(url string, a access, user string) probe {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.ca)
	client := &http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		},
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if token := a.tokens[user]; token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		return err
	}
}

func (c *Cluster) secureProbe(port int, path string) probe {
	return httpProbe(fmt.Sprintf("https://%s:%d%s", loopback, port, path), c.access, "")
}

// waitReady returns when the probe succeeds. It gives up when the program ends
// or the context does, and then says what the program said last.
func waitReady(ctx context.Context, p *process, ready probe) error {
	var last error
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		if p.hasEnded() {
			return false, p.endError()
		}
		if last = ready(ctx); last == nil {
			return true, nil
		}
		return false, nil
	})
	if err != nil && !p.hasEnded() {
		return fmt.Errorf("waiting for %s: %w (last answer: %v); last lines of its log:\n%s", p.name, err, last, tailOfFile(p.log))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("waiting for %s to be ready", p.name), err)
	}
	return nil
}
