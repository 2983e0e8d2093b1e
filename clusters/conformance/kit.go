package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

const (
	contentJSON     = "application/json"
	contentProtobuf = "application/vnd.kubernetes.protobuf"
)

// kit is what a check works with.
type kit struct {
	t         T
	cluster   Cluster
	config    *rest.Config
	core      kubernetes.Interface // speaks protobuf
	dynamic   dynamic.Interface
	client    *http.Client
	namespace string
}

func newKit(t T, cluster Cluster, config *rest.Config) *kit {
	t.Helper()
	k := &kit{t: t, cluster: cluster, config: config}
	var err error
	if k.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatalf("building client: %v", err)
	}
	if k.client, err = rest.HTTPClientFor(config); err != nil {
		t.Fatalf("building client: %v", err)
	}
	typed := rest.CopyConfig(config)
	typed.ContentType, typed.AcceptContentTypes = contentProtobuf, contentProtobuf+","+contentJSON
	if k.core, err = kubernetes.NewForConfig(typed); err != nil {
		t.Fatalf("building client: %v", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-"}}
	made, err := k.core.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	k.namespace = made.Name
	return k
}

// leave removes what the check made, as far as that needs no waiting.
func (k *kit) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.t.Context()), checkBound)
	defer cancel()
	_ = k.core.CoreV1().Namespaces().Delete(ctx, k.namespace, metav1.DeleteOptions{}) // the cluster goes soon
}

func (k *kit) ctx() context.Context { return k.t.Context() }

// must stops the check at an error that is not its subject.
func (k *kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatalf("%v", err)
	}
}

// wantReason expects a refusal.
func (k *kit) wantReason(err error, reason metav1.StatusReason, code int32) {
	k.t.Helper()
	status, _ := err.(apierrors.APIStatus)
	if status == nil {
		k.t.Fatalf("got error %v, want %s (%d)", err, reason, code)
	}
	if got := status.Status(); got.Reason != reason || got.Code != code {
		k.t.Errorf("got %s (%d): %s, want %s (%d)", got.Reason, got.Code, got.Message, reason, code)
	}
}

// await returns once condition holds, and fails when the check's time is over.
func (k *kit) await(what string, condition func() bool) {
	k.t.Helper()
	const pollPeriod = 20 * time.Millisecond
	for !condition() {
		if stepper, ok := k.cluster.(Stepper); ok {
			stepper.StepControllers()
		}
		select {
		case <-k.ctx().Done():
			k.t.Fatalf("still waiting for %s", what)
		case <-time.After(pollPeriod):
		}
	}
}

// reply is an answer as it came over the wire.
type reply struct {
	code        int
	contentType string
	retryAfter  string
	body        []byte
}

func (r reply) status(t T) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal(r.body, &s); err != nil {
		t.Fatalf("the answer is no Status: %v: %.100s", err, r.body)
	}
	return s
}

// call is a request that no client library would make.
type call struct {
	method, path, contentType, accept, body string
}

func (k *kit) send(c call) reply {
	k.t.Helper()
	response := k.open(c)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	k.must(err)
	return reply{response.StatusCode, response.Header.Get("Content-Type"), response.Header.Get("Retry-After"), body}
}

func (k *kit) open(c call) *http.Response {
	k.t.Helper()
	request, err := http.NewRequestWithContext(k.ctx(), c.method, strings.TrimSuffix(k.config.Host, "/")+c.path, bytes.NewBufferString(c.body))
	k.must(err)
	if c.contentType != "" {
		request.Header.Set("Content-Type", c.contentType)
	}
	if c.accept != "" {
		request.Header.Set("Accept", c.accept)
	}
	response, err := k.client.Do(request)
	k.must(err)
	return response
}

// core returns the path of a core resource in the check's namespace.
func (k *kit) corePath(resource string) string {
	return "/api/v1/namespaces/" + k.namespace + "/" + resource
}

func (k *kit) networks() dynamic.ResourceInterface {
	return k.dynamic.Resource(danm.GroupDanmIO.Resource(danm.DanmNet.Resource())).Namespace(k.namespace)
}

// object of JSON.
type object = map[string]any

func (k *kit) network(name string, labels map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: object{
		"apiVersion": danm.GroupDanmIO.GroupVersion().String(), "kind": string(danm.DanmNet),
		"spec": object{"NetworkID": "net", "Options": object{"cidr": "10.0.0.0/24", "alloc": "gAAAAA==", "vlan": int64(7)}},
	}}
	u.SetName(name)
	u.SetLabels(labels)
	return u
}

func (k *kit) createNetwork(name string, labels map[string]string) *unstructured.Unstructured {
	k.t.Helper()
	made, err := k.networks().Create(k.ctx(), k.network(name, labels), metav1.CreateOptions{})
	k.must(err)
	return made
}

func (k *kit) alloc(u *unstructured.Unstructured) string {
	k.t.Helper()
	alloc, _, err := unstructured.NestedString(u.Object, "spec", "Options", "alloc")
	k.must(err)
	return alloc
}

func (k *kit) setAlloc(u *unstructured.Unstructured, alloc string) {
	k.t.Helper()
	k.must(unstructured.SetNestedField(u.Object, alloc, "spec", "Options", "alloc"))
}

// touch changes a network, whatever its version.
func (k *kit) touch(name, alloc string) *unstructured.Unstructured {
	k.t.Helper()
	u, err := k.networks().Get(k.ctx(), name, metav1.GetOptions{})
	k.must(err)
	k.setAlloc(u, alloc)
	u, err = k.networks().Update(k.ctx(), u, metav1.UpdateOptions{})
	k.must(err)
	return u
}

// noScheduler keeps every scheduler away from the pods of a check.
const noScheduler = "conformance"

func (k *kit) pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, SchedulerName: noScheduler, Containers: []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
}

func (k *kit) createPod(name, node string) *corev1.Pod {
	k.t.Helper()
	made, err := k.core.CoreV1().Pods(k.namespace).Create(k.ctx(), k.pod(name, node), metav1.CreateOptions{})
	k.must(err)
	return made
}

func (k *kit) createConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	k.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	made, err := k.core.CoreV1().ConfigMaps(k.namespace).Create(k.ctx(), cm, metav1.CreateOptions{})
	k.must(err)
	return made
}

func (k *kit) lease(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
}

func (k *kit) version(rv string) int64 {
	k.t.Helper()
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil || n <= 0 {
		k.t.Fatalf("resourceVersion %q is no positive number", rv)
	}
	return n
}

func names[O metav1.Object](items []O) string {
	var list []string
	for _, o := range items {
		list = append(list, o.GetName())
	}
	return strings.Join(list, " ")
}

func pointers[O any](items []O) []*O {
	var list []*O
	for i := range items {
		list = append(list, &items[i])
	}
	return list
}
