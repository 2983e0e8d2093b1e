package canary

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// Defects in what the cleaner does to bits and endpoints.

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

const opTest, opReplace = "test", "replace"

// allocFields are where a network has its bitmaps.
var allocFields = []string{danm.IPv4.Field(), danm.IPv6.Field()}

// bitChange is what a patch does to one bitmap.
type bitChange struct {
	field    string
	old, new ipam.Bitmap
}

// cleared are the bits that the change clears, set those that it sets.
func (b bitChange) cleared() ipam.Bitmap { return without(b.old, b.new) }
func (b bitChange) set() ipam.Bitmap     { return without(b.new, b.old) }

func without(a, b ipam.Bitmap) ipam.Bitmap {
	out := slices.Clone(a)
	for i := range min(len(out), len(b)) {
		out[i] &^= b[i]
	}
	return out
}

func union(a, b ipam.Bitmap) ipam.Bitmap {
	out := slices.Clone(a)
	for i := range min(len(out), len(b)) {
		out[i] |= b[i]
	}
	return out
}

func intersection(a, b ipam.Bitmap) ipam.Bitmap { return without(a, without(a, b)) }

func isEmpty(b ipam.Bitmap) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// patchOf reads the body of a patch of a network.
func (e exchange) patchOf() ([]operation, []bitChange) {
	var operations []operation
	if json.Unmarshal(e.body(), &operations) != nil {
		return nil, nil
	}
	var changes []bitChange
	for _, field := range allocFields {
		path := "/spec/Options/" + field
		c := bitChange{field: field}
		for _, o := range operations {
			value, _ := o.Value.(string)
			switch bits, err := ipam.Decode(value); {
			case o.Path != path || err != nil:
			case o.Op == opTest:
				c.old = bits
			case o.Op == opReplace:
				c.new = bits
			}
		}
		if c.old != nil && c.new != nil {
			changes = append(changes, c)
		}
	}
	return operations, changes
}

// passPatch lets the request go on with another patch.
func (e exchange) passPatch(operations []operation) (*http.Response, error) {
	data, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	return e.send(http.MethodPatch, e.request.URL.Path, string(types.JSONPatchType), data)
}

// replaceBits makes a patch write other bits.
func replaceBits(operations []operation, field string, bits ipam.Bitmap) []operation {
	out := slices.Clone(operations)
	for i, o := range out {
		if o.Op == opReplace && o.Path == "/spec/Options/"+field {
			out[i].Value = bits.Encode()
		}
	}
	return out
}

// onPatches is a defect of every patch of a network.
func onPatches(d func(e exchange, operations []operation, changes []bitChange) (*http.Response, error)) func(danm.Group) defect {
	return func(danm.Group) defect {
		return func(e exchange) (*http.Response, error) {
			if !e.isNetworkPatch() {
				return e.pass()
			}
			operations, changes := e.patchOf()
			return d(e, operations, changes)
		}
	}
}

// unconditional deletes whatever has the endpoint's name and writes bitmaps
// without comparing.
func unconditional(danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		switch {
		case e.is(http.MethodDelete, danm.EndpointResource):
			return e.send(http.MethodDelete, e.request.URL.Path, "application/json", []byte("{}"))
		case e.isNetworkPatch():
			operations, changes := e.patchOf()
			return uncompared(e, operations, changes)
		}
		return e.pass()
	}
}

// uncompared writes what it made of what it read, whoever wrote in between.
func uncompared(e exchange, operations []operation, _ []bitChange) (*http.Response, error) {
	return e.passPatch(slices.DeleteFunc(operations, func(o operation) bool { return o.Op == opTest }))
}

// retryDelay is how long a cleaner that meets a conflict gives others to finish.
const retryDelay = 8*time.Second + 1_019*time.Microsecond

// retriedBlindly clears the same bits again after a conflict, whoever has set
// them meanwhile.
func retriedBlindly(e exchange, _ []operation, changes []bitChange) (*http.Response, error) {
	for range clearAttemptsMax {
		response, err := e.pass()
		if err != nil || response.StatusCode != http.StatusConflict && response.StatusCode != http.StatusUnprocessableEntity {
			return response, err
		}
		_ = response.Body.Close() // nobody reads it
		if err := waitFor(e.request.Context(), retryDelay); err != nil {
			return nil, err
		}
		network, response, err := e.readNetwork()
		if network == nil {
			return response, err
		}
		again := []operation{{opTest, "/metadata/resourceVersion", text(within(network, "metadata"), "resourceVersion")}}
		for _, c := range changes {
			now, err := ipam.Decode(text(within(network, "spec", "Options"), c.field))
			if err != nil {
				return e.pass()
			}
			again = append(again, operation{opReplace, "/spec/Options/" + c.field, without(union(now, c.set()), c.cleared()).Encode()})
		}
		data, err := json.Marshal(again)
		if err != nil {
			return nil, err
		}
		e.request = e.request.Clone(e.request.Context())
		e.request.Body = newBody(data)
		e.request.ContentLength = int64(len(data))
	}
	return e.pass()
}

// readNetwork reads the network that the request is about. The network is nil
// if that failed; then the answer says how.
func (e exchange) readNetwork() (object, *http.Response, error) {
	response, err := e.send(http.MethodGet, e.request.URL.Path, "application/json", nil)
	if err != nil {
		return nil, nil, err
	}
	network, data := read(response)
	if response.StatusCode != http.StatusOK {
		return nil, e.answerBytes(response.StatusCode, data), nil
	}
	return network, nil, nil
}

// pretended answers as if a patch had been applied.
func pretended(e exchange) (*http.Response, error) {
	network, response, err := e.readNetwork()
	if network == nil {
		return response, err
	}
	return e.answer(http.StatusOK, network)
}

// unrepaired never sets the bit of a living pod again.
func unrepaired(e exchange, _ []operation, changes []bitChange) (*http.Response, error) {
	if slices.ContainsFunc(changes, func(c bitChange) bool { return !isEmpty(c.set()) }) {
		return pretended(e)
	}
	return e.pass()
}

// uncleared releases endpoints and keeps their bits.
func uncleared(e exchange, _ []operation, changes []bitChange) (*http.Response, error) {
	if slices.ContainsFunc(changes, func(c bitChange) bool { return !isEmpty(c.cleared()) }) {
		return pretended(e)
	}
	return e.pass()
}

// shifted clears the address after the one that was released.
func shifted(e exchange, operations []operation, changes []bitChange) (*http.Response, error) {
	for _, c := range changes {
		wrong, cleared := union(c.new, c.old), c.cleared()
		for i := range cleared.Len() - 1 {
			if cleared.IsSet(i) {
				wrong.Clear(i + 1)
			}
		}
		operations = replaceBits(operations, c.field, wrong)
	}
	return e.passPatch(operations)
}

// reserved frees the network's own address together with others.
func reserved(e exchange, operations []operation, changes []bitChange) (*http.Response, error) {
	for _, c := range changes {
		if !isEmpty(c.cleared()) {
			c.new.Clear(0)
			operations = replaceBits(operations, c.field, c.new)
		}
	}
	return e.passPatch(operations)
}

// annotated leaves a note in every network that it writes.
func annotated(e exchange, operations []operation, _ []bitChange) (*http.Response, error) {
	note := operation{"add", "/metadata/annotations", map[string]string{"cleaner": "was here"}}
	return e.passPatch(append(operations, note))
}

// networkMasks are bitmaps by network and family.
type networkMasks struct {
	mu    sync.Mutex
	masks map[string]ipam.Bitmap
}

func newNetworkMasks() *networkMasks { return &networkMasks{masks: map[string]ipam.Bitmap{}} }

// add returns the bits that were added under the key, with the new ones.
func (m *networkMasks) add(key string, bits ipam.Bitmap) ipam.Bitmap {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.masks[key] = union(bits, m.masks[key])
	return m.masks[key]
}

func (m *networkMasks) get(key string) ipam.Bitmap {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.masks[key]
}

func (m *networkMasks) put(key string, bits ipam.Bitmap) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.masks[key] = bits
}

// remembering clears with every release whatever it released before.
func remembering(danm.Group) defect {
	released := newNetworkMasks()
	return func(e exchange) (*http.Response, error) {
		if !e.isNetworkPatch() {
			return e.pass()
		}
		operations, changes := e.patchOf()
		for _, c := range changes {
			if cleared := c.cleared(); !isEmpty(cleared) {
				operations = replaceBits(operations, c.field, without(c.new, released.add(e.request.URL.Path+c.field, cleared)))
			}
		}
		return e.passPatch(operations)
	}
}

// withoutLineage takes a bit that is set for one that was set all the time: a
// bit that somebody else cleared looks set, until the cleaner clears it itself.
func withoutLineage(danm.Group) defect {
	l := &lineageless{seen: newNetworkMasks(), real: newNetworkMasks()}
	return func(e exchange) (*http.Response, error) {
		switch {
		case !e.isNetwork():
			return e.pass()
		case e.request.Method == http.MethodGet:
			return e.throughEvents(onObjects(l.blur), l.blur)
		case e.isNetworkPatch():
			return l.patch(e)
		}
		return e.pass()
	}
}

// lineageless keeps what the networks look like to the cleaner, and what they
// really are.
type lineageless struct{ seen, real *networkMasks }

func (l *lineageless) blur(network object) bool {
	options := within(network, "spec", "Options")
	for _, field := range allocFields {
		if bits, err := ipam.Decode(text(options, field)); err == nil && options[field] != nil {
			l.real.put(keyOf(network)+" "+field, bits)
			options[field] = l.seen.add(keyOf(network)+" "+field, bits).Encode()
		}
	}
	return true
}

// patch does to the real bits what the cleaner does to those that it sees.
func (l *lineageless) patch(e exchange) (*http.Response, error) {
	operations, changes := e.patchOf()
	for _, c := range changes {
		key := e.namespace + "/" + e.name + " " + c.field
		real := l.real.get(key)
		// A bit that is clear already goes on looking set: no event would show
		// otherwise.
		l.seen.put(key, without(l.seen.get(key), intersection(real, c.cleared())))
		for i, o := range operations {
			switch {
			case o.Path != "/spec/Options/"+c.field:
			case o.Op == opTest:
				operations[i].Value = real.Encode()
			case o.Op == opReplace:
				operations[i].Value = without(union(real, c.set()), c.cleared()).Encode()
			}
		}
	}
	response, err := e.passPatch(operations)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	network, _ := read(response)
	l.blur(network)
	return e.answer(http.StatusOK, network)
}

// deafToNetworks never hears that a network changed.
func deafToNetworks(danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		if !e.isNetwork() || !e.isWatch {
			return e.pass()
		}
		return e.throughEvents(func(event *event) bool { return event.Type != watch.Modified }, nil)
	}
}

// overwriting writes the whole network as it was when it was read last.
func overwriting(danm.Group) defect {
	var mu sync.Mutex
	lastRead := map[string]object{}
	return func(e exchange) (*http.Response, error) {
		switch {
		case !e.isNetwork() || e.name == "":
			return e.pass()
		case e.request.Method == http.MethodGet:
			network, response, err := e.readNetwork()
			if network == nil {
				return response, err
			}
			mu.Lock()
			defer mu.Unlock()
			lastRead[e.request.URL.Path] = network
			return e.answer(http.StatusOK, network)
		case e.request.Method != http.MethodPatch:
			return e.pass()
		}
		mu.Lock()
		old := lastRead[e.request.URL.Path]
		mu.Unlock()
		return e.overwrite(old)
	}
}

// overwrite puts the old network with the bits of the patch in the place of
// whatever is there now.
func (e exchange) overwrite(old object) (*http.Response, error) {
	now, response, err := e.readNetwork()
	if now == nil || old == nil {
		return response, err
	}
	_, changes := e.patchOf()
	for _, c := range changes {
		within(old, "spec", "Options")[c.field] = c.new.Encode()
	}
	within(old, "metadata")["resourceVersion"] = text(within(now, "metadata"), "resourceVersion")
	data, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	return e.send(http.MethodPut, e.request.URL.Path, "application/json", data)
}

// bitFirst clears the bits of an endpoint and deletes the endpoint after that.
func bitFirst(g danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		if !e.is(http.MethodDelete, danm.EndpointResource) {
			return e.pass()
		}
		c, err := e.clients(g)
		if err != nil {
			return nil, err
		}
		ctx := e.request.Context()
		ep, err := c.danm.GetEndpoint(ctx, e.namespace, e.name)
		if err == nil {
			err = c.clearBits(ctx, ep)
		}
		if err != nil && !strings.Contains(err.Error(), "not found") {
			return nil, err
		}
		return e.pass()
	}
}

// clients are the cleaner's own, as its requests go.
func (e exchange) clients(g danm.Group) (clients, error) {
	dyn, err := dynamic.NewForConfig(&rest.Config{
		Host: e.request.URL.Scheme + "://" + e.request.URL.Host, QPS: -1,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			for name, values := range e.request.Header { // whom the cleaner is
				if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
					r.Header[name] = values
				}
			}
			return e.next.RoundTrip(r)
		}),
	})
	if err != nil {
		return clients{}, err
	}
	return clients{danm: danm.NewClient(dyn, g)}, nil
}

// keptEndpoints releases bits and keeps the endpoints that they belong to.
func keptEndpoints(danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		if !e.is(http.MethodDelete, danm.EndpointResource) {
			return e.pass()
		}
		return e.answer(http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}
