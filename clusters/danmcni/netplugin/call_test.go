package netplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni/internal/memoryapi"
)

type object = memoryapi.Object

// fakePlugins stand for all plugins in CNI_PATH: they configure nothing and
// answer what they were asked for.
type fakePlugins struct {
	version.PluginDecoder
	calls []string // "ADD bridge eth0 CNI_ARGS"
	// onCall may fail a call or look around; stdin is the configuration.
	onCall func(ctx context.Context, call string, stdin []byte) error
	// address replaces the addresses that an ADD was asked for.
	address string
}

func (f *fakePlugins) FindInPath(plugin string, _ []string) (string, error) { return "/" + plugin, nil }

func (f *fakePlugins) ExecPlugin(ctx context.Context, plugin string, stdin []byte, environ []string) ([]byte, error) {
	env := map[string]string{}
	for _, e := range environ {
		key, value, _ := strings.Cut(e, "=")
		env[key] = value
	}
	call := strings.Join([]string{env["CNI_COMMAND"], path.Base(plugin), env["CNI_IFNAME"]}, " ")
	f.calls = append(f.calls, call+" "+env["CNI_ARGS"])
	if f.onCall != nil {
		if err := f.onCall(ctx, call, stdin); err != nil {
			return nil, err
		}
	}
	return f.answer(env["CNI_IFNAME"], stdin)
}

func (f *fakePlugins) answer(ifName string, stdin []byte) ([]byte, error) {
	var config struct {
		CNIVersion string `json:"cniVersion"`
		IPAM       struct {
			Addresses []struct {
				Address string `json:"address"`
			} `json:"addresses"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(stdin, &config); err != nil {
		return nil, err
	}
	ips := []object{}
	for _, a := range config.IPAM.Addresses {
		if f.address != "" {
			a.Address = f.address
		}
		ips = append(ips, object{"address": a.Address, "interface": 0})
	}
	return json.Marshal(object{"cniVersion": config.CNIVersion, "interfaces": []object{{"name": ifName, "sandbox": "/s"}}, "ips": ips})
}

// bench is everything around one sandbox.
type bench struct {
	t       *testing.T
	api     *memoryapi.API
	plugins *fakePlugins
	dir     string
	config  object
	args    skel.CmdArgs
}

const (
	runtimeArgs = "IgnoreUnknown=1;IP=10.9.9.9/24;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=uid-of-web-0"
	ownArgs     = "IgnoreUnknown=1"
)

func newBench(t *testing.T, annotation string) *bench {
	t.Helper()
	b := &bench{t: t, api: memoryapi.New(), plugins: &fakePlugins{}, dir: t.TempDir()}
	server := httptest.NewServer(b.api)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(b.dir, "kubeconfig")
	text := fmt.Sprintf(`{"kind":"Config","apiVersion":"v1","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],
		"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.config = object{
		"cniVersion": "1.0.0", "name": "danm", "kubeconfig": kubeconfig, "nodeName": "n1", "dataDir": filepath.Join(b.dir, "danm"),
		"delegate": object{"type": "ptp", "ipam": object{"type": "host-local"}},
	}
	b.args = skel.CmdArgs{ContainerID: "cid", Netns: b.dir, IfName: "eth0", Args: runtimeArgs, Path: "/opt"}
	b.addObjects(annotation)
	return b
}

func (b *bench) addObjects(annotation string) {
	b.t.Helper()
	empty, err := ipam.Empty(ipam.Spec{CIDR: "10.10.10.0/24"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.api.Store("/api/v1/namespaces/ns/pods/web-0", object{"metadata": object{
		"name": "web-0", "namespace": "ns", "uid": "uid-of-web-0", "annotations": object{"danm.io/interfaces": annotation},
	}})
	b.api.Store("/apis/danm.io/v1/namespaces/ns/danmnets/net", object{
		"kind": "DanmNet", "apiVersion": "danm.io/v1", "metadata": object{"name": "net", "namespace": "ns", "uid": "u"},
		"spec": object{"NetworkID": "net", "Options": object{"cidr": "10.10.10.0/24", "alloc": empty}},
	})
}

// run executes a command and returns what it printed.
func (b *bench) run(do func(*call, context.Context) error) (string, error) {
	b.t.Helper()
	stdin, err := json.Marshal(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.args.StdinData = stdin
	var out bytes.Buffer
	framed := command("TEST", func(c *call, ctx context.Context) error {
		c.out, c.plugins.exec = &out, b.plugins
		return do(c, ctx)
	})
	err = framed(&b.args)
	return out.String(), err
}

func (b *bench) must(do func(*call, context.Context) error) string {
	b.t.Helper()
	out, err := b.run(do)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) wantCalls(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.plugins.calls); diff != "" {
		b.t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// wantNothing fails if an endpoint, a bit or a note is left.
func (b *bench) wantNothing() {
	b.t.Helper()
	empty, _ := ipam.Empty(ipam.Spec{CIDR: "10.10.10.0/24"})
	for key, o := range b.api.Objects {
		if strings.Contains(key, "/danmeps/") {
			b.t.Errorf("%s is left", key)
		}
		if o["kind"] == "DanmNet" && o["spec"].(object)["Options"].(object)["alloc"] != empty {
			b.t.Errorf("a bit of %s is left", key)
		}
	}
	if _, err := os.Stat(b.note()); err == nil {
		b.t.Error("the note is left")
	}
}

func (b *bench) note() string { return filepath.Join(b.dir, "danm/danm/cid-eth0.json") }

const two = `[{"network":"net","ip":"dynamic"},{"network":"net","ip":"dynamic"}]`

func TestInterfacesAreMadeInOrderAndRemovedInReverse(t *testing.T) {
	b := newBench(t, two)
	out := b.must((*call).add)
	for _, want := range []string{`"cniVersion": "1.0.0"`, `"10.10.10.1/24"`, `"10.10.10.2/24"`, `"eth1"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the result lacks %s:\n%s", want, out)
		}
	}
	b.must((*call).del)
	b.wantCalls("ADD bridge eth0 "+ownArgs, "ADD bridge eth1 "+ownArgs, "DEL bridge eth1 "+ownArgs, "DEL bridge eth0 "+ownArgs)
	b.wantNothing()
}

func TestTheDelegateOfAnOrdinaryPodGetsWhatTheRuntimeSays(t *testing.T) {
	b := newBench(t, "[]")
	b.config["runtimeConfig"] = object{"portMappings": []int{80}}
	b.plugins.onCall = func(_ context.Context, call string, stdin []byte) error {
		if !strings.Contains(string(stdin), `"portMappings":[80]`) || !strings.Contains(string(stdin), `"name":"danm"`) {
			return fmt.Errorf("%s got %s", call, stdin)
		}
		return nil
	}
	b.must((*call).add)
	delete(b.config, "runtimeConfig") // DEL goes by what ADD noted
	b.must((*call).del)
	b.wantCalls("ADD ptp eth0 "+runtimeArgs, "DEL ptp eth0 "+runtimeArgs)
	b.wantNothing()
}

func TestTheNoteIsThereBeforeTheFirstInterface(t *testing.T) {
	b := newBench(t, two)
	b.plugins.onCall = func(context.Context, string, []byte) error {
		_, err := os.Stat(b.note())
		return err
	}
	b.must((*call).add)
}

func TestAPluginThatConfiguresAnotherAddressFailsTheAdd(t *testing.T) {
	b := newBench(t, `[{"network":"net","ip":"dynamic"}]`)
	b.plugins.address = "10.10.10.77/24"
	_, err := b.run((*call).add)
	wantCode(t, err, types.ErrInternal)
	if !strings.Contains(err.Error(), "[10.10.10.77/24] instead of [10.10.10.1/24]") {
		t.Errorf("error %v", err)
	}
	b.wantNothing()
}

func TestAPluginThatHangsIsEndedAndRolledBack(t *testing.T) {
	b := newBench(t, two)
	b.config["timeout"] = "300ms"
	b.plugins.onCall = func(ctx context.Context, call string, _ []byte) error {
		if call != "ADD bridge eth1" {
			return nil
		}
		<-ctx.Done()
		return types.NewError(types.ErrUnknown, "netplugin failed with no error message", "signal: killed")
	}
	begin := time.Now()
	_, err := b.run((*call).add)
	wantCode(t, err, types.ErrTryAgainLater)
	if took := time.Since(begin); took > rollbackDuration {
		t.Errorf("it took %s", took)
	}
	b.wantNothing()
}

func TestTheCodeOfAPluginReachesTheRuntime(t *testing.T) {
	b := newBench(t, "")
	b.api.Store("/api/v1/namespaces/ns/pods/web-0", object{"metadata": object{"name": "web-0", "namespace": "ns", "uid": "u"}})
	b.plugins.onCall = func(context.Context, string, []byte) error {
		return types.NewError(types.ErrInvalidNetworkConfig, "no such subnet", "")
	}
	_, err := b.run((*call).add)
	wantCode(t, err, types.ErrInvalidNetworkConfig)
	if !strings.Contains(err.Error(), "attaching eth0 of pod ns/web-0 by ptp; no such subnet") {
		t.Errorf("error %v", err)
	}
}

func TestDelOfDanmSwallowsTheErrorsOfPluginsAndCarefulReturnsThem(t *testing.T) {
	for variant, isReturned := range map[string]bool{"danm-4.3": false, "careful": true} {
		b := newBench(t, two)
		b.config["variant"] = variant
		b.must((*call).add)
		b.plugins.onCall = func(context.Context, string, []byte) error { return errors.New("link is busy") }
		_, err := b.run((*call).del)
		if (err != nil) != isReturned {
			t.Errorf("%s: error %v", variant, err)
		}
		b.plugins.onCall = nil
		b.must((*call).del)
		b.wantNothing()
	}
}

func TestABrokenNoteIsNone(t *testing.T) {
	b := newBench(t, two)
	b.must((*call).add)
	if err := os.WriteFile(b.note(), []byte(`{"containerID":"c`), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must((*call).del)
	if last := b.plugins.calls[len(b.plugins.calls)-1]; last != "DEL ptp eth0 "+runtimeArgs {
		t.Errorf("last call %q: the ordinary plugin may have been at work", last)
	}
	b.wantNothing()
}

func TestAddRefusesToComeAfterAnotherPlugin(t *testing.T) {
	b := newBench(t, two)
	b.config["prevResult"] = object{"cniVersion": "1.0.0"}
	_, err := b.run((*call).add)
	wantCode(t, err, types.ErrInvalidNetworkConfig)
	b.wantNothing()
}

func TestAddRefusesAFirstInterfaceThatDanmDoesNotKnow(t *testing.T) {
	b := newBench(t, two)
	b.args.IfName = "net1"
	_, err := b.run((*call).add)
	wantCode(t, err, types.ErrInvalidEnvironmentVariables)
	b.wantNothing()
}

func TestCheckReadsTheResultThatTheRuntimeKept(t *testing.T) {
	b := newBench(t, two)
	out := b.must((*call).add)
	for _, tc := range []struct {
		name, prev string
		code       uint // 0 for none
	}{
		{"the result of ADD", out, 0},
		{"a result to which a later plugin added", strings.Replace(out, `"ips": [`, `"ips": [{"address": "10.1.1.1/24"},`, 1), 0},
		{"a result without an address", strings.Replace(out, "10.10.10.2/24", "10.10.10.3/24", 1), codeNotAsAdded},
		{"no result", "", types.ErrInvalidNetworkConfig},
		{"no JSON of a result", `"text"`, types.ErrDecodingFailure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			delete(b.config, "prevResult")
			if tc.prev != "" {
				b.config["prevResult"] = json.RawMessage(tc.prev)
			}
			_, err := b.run((*call).check)
			if tc.code == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantCode(t, err, tc.code)
		})
	}
	if !slices.Contains(b.plugins.calls, "CHECK bridge eth1 "+ownArgs) {
		t.Errorf("calls %v", b.plugins.calls)
	}
}

func TestALogThatCannotBeWrittenKeepsNoPodFromItsNetwork(t *testing.T) {
	b := newBench(t, two)
	b.config["logFile"] = b.dir // a folder
	b.must((*call).add)
}
