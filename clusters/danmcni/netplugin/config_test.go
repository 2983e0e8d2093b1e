package netplugin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const minimal = `{"cniVersion":"1.0.0","name":"danm","type":"danm-cni","kubeconfig":"/etc/k","nodeName":"n1"`

func TestParseConfigFillsInTheDefaults(t *testing.T) {
	got, err := parseConfig([]byte(minimal + `}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		CNIVersion: "1.0.0", Name: "danm", Kubeconfig: "/etc/k", NodeName: "n1",
		DanmAPI: "danm.io", Variant: "danm-4.3", Timeout: duration(30 * time.Second),
		DataDir: "/var/lib/cni/danm", Attach: template{"type": "bridge"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestParseConfigTakesEveryKey(t *testing.T) {
	got, err := parseConfig([]byte(minimal + `,"danmAPI":"danm.k8s.io","variant":"careful","timeout":"5s","logFile":"/l","recordFile":"/r","dataDir":"/d",
		"attach":{"type":"macvlan","master":"ens4"},"delegate":{"type":"ptp","ipam":{"type":"host-local"}},
		"cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		CNIVersion: "1.0.0", Name: "danm", Kubeconfig: "/etc/k", NodeName: "n1",
		DanmAPI: "danm.k8s.io", Variant: "careful", Timeout: duration(5 * time.Second), LogFile: "/l", RecordFile: "/r", DataDir: "/d",
		Attach:           template{"type": "macvlan", "master": "ens4"},
		Delegate:         template{"type": "ptp", "ipam": map[string]any{"type": "host-local"}},
		ValidAttachments: []types.GCAttachment{{ContainerID: "c", IfName: "eth0"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestParseConfigNamesTheWrongKey(t *testing.T) {
	for _, tc := range []struct {
		name, keys string
		code       uint
		want       string
	}{
		{"a kubeconfig that is not absolute", `,"kubeconfig":"k"}`, types.ErrInvalidNetworkConfig, `kubeconfig: "k"`},
		{"an unknown API group", `,"danmAPI":"danm.org"}`, types.ErrInvalidNetworkConfig, "danmAPI: unknown"},
		{"an unknown variant", `,"variant":"danm-9"}`, types.ErrInvalidNetworkConfig, "variant: unknown"},
		{"a timeout without unit", `,"timeout":"30"}`, types.ErrDecodingFailure, "not a duration"},
		{"a negative timeout", `,"timeout":"-1s"}`, types.ErrInvalidNetworkConfig, "timeout: -1s"},
		{"a data folder that is not absolute", `,"dataDir":"d"}`, types.ErrInvalidNetworkConfig, "dataDir"},
		{"a record file that is not absolute", `,"recordFile":"r"}`, types.ErrInvalidNetworkConfig, "recordFile"},
		{"a plugin that cannot attach", `,"attach":{"type":"host-device"}}`, types.ErrInvalidNetworkConfig, "attach: type"},
		{"addresses from elsewhere", `,"attach":{"type":"ptp","ipam":{"type":"dhcp"}}}`, types.ErrInvalidNetworkConfig, "attach: ipam"},
		{"a delegate without type", `,"delegate":{"x":1}}`, types.ErrInvalidNetworkConfig, "delegate"},
		{"not JSON", ``, types.ErrDecodingFailure, "unexpected end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseConfig([]byte(minimal + tc.keys))
			wantCode(t, err, tc.code)
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q lacks %q", err, tc.want)
			}
		})
	}
}

func wantCode(t *testing.T, err error, code uint) {
	t.Helper()
	var coded *types.Error
	if !errors.As(err, &coded) {
		t.Fatalf("error %v has no CNI code, want %d", err, code)
	}
	if coded.Code != code {
		t.Errorf("error %v has code %d, want %d", err, coded.Code, code)
	}
}

func TestOnlyWhatMayPassIsToBeTriedAgain(t *testing.T) {
	resource := schema.GroupResource{Group: "danm.io", Resource: "danmnets"}
	for _, tc := range []struct {
		name string
		err  error
		want uint
	}{
		{"no way to the API", &url.Error{Op: "Get", URL: "https://api", Err: errors.New("connection refused")}, types.ErrTryAgainLater},
		{"the time is up", fmt.Errorf("reading: %w", context.DeadlineExceeded), types.ErrTryAgainLater},
		{"the API is in trouble", apierrors.NewInternalError(errors.New("no leader")), types.ErrTryAgainLater},
		{"no such network", apierrors.NewNotFound(resource, "a"), codeNotReserved},
		{"no right", apierrors.NewForbidden(resource, "a", nil), codeNotReserved},
		{"a full network", errors.New("all addresses are reserved"), codeNotReserved},
		{"a file", &os.PathError{Op: "open", Path: "/p", Err: syscall.EACCES}, codeNotReserved},
	} {
		if got := codeOf(tc.err, codeNotReserved); got != tc.want {
			t.Errorf("%s: code %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestParseArgsReadsThePod(t *testing.T) {
	got, err := parseArgs("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=u;K8S_POD_INFRA_CONTAINER_ID=c")
	if err != nil || got != (podArgs{"ns", "web-0", "u"}) {
		t.Errorf("parseArgs = %+v, %v", got, err)
	}
	_, err = parseArgs("K8S_POD_NAME")
	wantCode(t, err, types.ErrInvalidEnvironmentVariables)
}
