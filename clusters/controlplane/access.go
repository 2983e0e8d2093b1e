package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/danm-chaos/danm-chaos/clusters"
)

// Users of our own programs.
const (
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
)

// Groups that users are in. mastersGroup may do everything.
const (
	mastersGroup = "system:masters"
	nodesGroup   = "system:nodes"
)

// loopback is the only address that anything listens on.
const loopback = "127.0.0.1"

// tokenUsers lists the users with a token. Nodes have none, because they come
// and go while the token file is read only once: the harness impersonates them.
func tokenUsers() []string {
	return []string{clusters.UserHarness, clusters.UserCleaner, userControllerManager, userScheduler}
}

// access is what it takes to talk to the API server.
type access struct {
	server string
	ca     []byte            // PEM
	tokens map[string]string // by user
}

// createAccess makes certificate, keys and tokens and writes the files that
// the API server reads.
func createAccess(files layout, apiserverPort int) (access, error) {
	a := access{server: fmt.Sprintf("https://%s:%d", loopback, apiserverPort), tokens: map[string]string{}}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(loopback, []net.IP{net.ParseIP(loopback)}, []string{"localhost"})
	if err != nil {
		return a, fmt.Errorf("making the serving certificate: %w", err)
	}
	a.ca = certPEM // the authority follows the certificate in it
	signer, err := newSigningKey()
	if err != nil {
		return a, err
	}
	var csv strings.Builder
	for _, user := range tokenUsers() {
		a.tokens[user] = newToken()
		fmt.Fprintf(&csv, "%s,%s,%s,%q\n", a.tokens[user], user, user, mastersGroup)
	}
	for path, content := range map[string][]byte{
		files.servingCert(): certPEM,
		files.servingKey():  keyPEM,
		files.signingKey():  signer,
		files.tokens():      []byte(csv.String()),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return a, fmt.Errorf("writing access files: %w", err)
		}
	}
	return a, a.writeKubeconfigs(files)
}

// newToken returns a secret. It must not be drawn from the run's seed.
func newToken() string {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails; the program would end first
	return hex.EncodeToString(secret[:])
}

func newSigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the service account key: %w", err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the service account key: %w", err)
	}
	return pem, nil
}

func (a access) writeKubeconfigs(files layout) error {
	for _, user := range tokenUsers() {
		config := clientcmdapi.NewConfig()
		config.Clusters["danm-chaos"] = &clientcmdapi.Cluster{Server: a.server, CertificateAuthorityData: a.ca}
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: a.tokens[user]}
		config.Contexts["danm-chaos"] = &clientcmdapi.Context{Cluster: "danm-chaos", AuthInfo: user}
		config.CurrentContext = "danm-chaos"
		if err := clientcmd.WriteToFile(*config, files.kubeconfig(user)); err != nil { // mode 0600
			return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

// restConfig returns access as that user. Cleaner and nodes keep client-go's
// own request limit, or set one; the harness must not be what is slow.
func (a access) restConfig(user string) (*rest.Config, error) {
	config := &rest.Config{
		Host:            a.server,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.ca},
	}
	if node, isNode := strings.CutPrefix(user, clusters.UserNodePrefix); isNode && node != "" {
		config.BearerToken = a.tokens[clusters.UserHarness]
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{nodesGroup, mastersGroup}}
		return config, nil
	}
	token, known := a.tokens[user]
	if !known {
		return nil, fmt.Errorf("getting access: unknown user %q", user)
	}
	config.BearerToken = token
	if user == clusters.UserHarness {
		config.QPS = -1
	}
	return config, nil
}

// layout says where the files of a cluster are.
type layout struct {
	folder string
	logs   string
}

func (l layout) etcdData() string        { return filepath.Join(l.folder, "etcd") }
func (l layout) servingCert() string     { return filepath.Join(l.folder, "serving.crt") }
func (l layout) servingKey() string      { return filepath.Join(l.folder, "serving.key") }
func (l layout) signingKey() string      { return filepath.Join(l.folder, "service-account.key") }
func (l layout) tokens() string          { return filepath.Join(l.folder, "tokens.csv") }
func (l layout) auditPolicy() string     { return filepath.Join(l.folder, "audit-policy.yaml") }
func (l layout) auditLog() string        { return filepath.Join(l.folder, "audit.log") }
func (l layout) schedulerConfig() string { return filepath.Join(l.folder, "scheduler.yaml") }
func (l layout) log(program string) string {
	return filepath.Join(l.logs, program+".log")
}
func (l layout) kubeconfig(user string) string {
	return filepath.Join(l.folder, "kubeconfig-"+strings.ReplaceAll(user, ":", "-"))
}
