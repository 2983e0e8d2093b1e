package check

import (
	"bytes"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// reader reads JSON objects as API servers write them: without blanks, escapes
// and fields that it does not know. Everything else is odd, and left to
// encoding/json, so that one history is judged alike whoever wrote it down. A
// search judges hundreds of histories a second, of hundreds of writes each;
// reflection was more than half of what that cost.
type reader struct {
	data  []byte
	at    int
	isOdd bool
}

// isWhole tells whether all was read and nothing was odd.
func (r *reader) isWhole() bool { return !r.isOdd && r.at == len(r.data) }

// take passes one byte, which must come next.
func (r *reader) take(c byte) {
	if r.at < len(r.data) && r.data[r.at] == c {
		r.at++
	} else {
		r.isOdd = true
	}
}

// passes passes a byte if it comes next.
func (r *reader) passes(c byte) bool {
	if r.at < len(r.data) && r.data[r.at] == c {
		r.at++
		return true
	}
	return false
}

// first opens an object and returns the name of its first field, and next that of
// the field after a value. Both return nil where there is no more.
func (r *reader) first() []byte {
	r.take('{')
	if r.isOdd || r.passes('}') {
		return nil
	}
	return r.name()
}

func (r *reader) next() []byte {
	switch {
	case r.isOdd:
		return nil
	case r.passes(','):
		return r.name()
	}
	r.take('}')
	return nil
}

func (r *reader) name() []byte {
	name := r.text()
	r.take(':')
	if r.isOdd {
		return nil
	}
	return name
}

// text returns a string.
func (r *reader) text() []byte {
	r.take('"')
	if r.isOdd {
		return nil
	}
	rest := r.data[r.at:]
	for i, c := range rest {
		switch {
		case c == '"':
			r.at += i + 1
			return rest[:i]
		case c < ' ' || c > '~' || c == '\\':
			r.isOdd = true
			return nil
		}
	}
	r.isOdd = true
	return nil
}

// digitsMax is how many digits surely fit into an int64.
const digitsMax = 18

// number passes a whole number that is not negative.
func (r *reader) number() {
	from := r.at
	for r.at < len(r.data) && '0' <= r.data[r.at] && r.data[r.at] <= '9' {
		r.at++
	}
	digits := r.at - from
	if digits == 0 || digits > digitsMax || digits > 1 && r.data[from] == '0' {
		r.isOdd = true
	}
}

func (r *reader) moment() {
	if _, err := time.Parse(time.RFC3339, string(r.text())); err != nil {
		r.isOdd = true
	}
}

// texts adds an object of strings to those that there are.
func (r *reader) texts(all map[string]string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	for f := r.first(); f != nil; f = r.next() {
		all[string(f)] = string(r.text())
	}
	return all
}

// decodeEndpoint reads what the model keeps of an endpoint, whatever e was before.
func decodeEndpoint(data []byte, e *danm.Endpoint) error {
	*e = danm.Endpoint{}
	r := reader{data: data}
	if r.endpoint(e); r.isWhole() {
		return nil
	}
	*e = danm.Endpoint{}
	return json.Unmarshal(data, e)
}

func (r *reader) endpoint(e *danm.Endpoint) {
	for f := r.first(); f != nil; f = r.next() {
		switch string(f) {
		case "apiVersion", "kind":
			r.text()
		case "metadata":
			r.metadata(nil)
		case "spec":
			r.endpointSpec(&e.Spec)
		default:
			r.isOdd = true
		}
	}
}

func (r *reader) endpointSpec(s *danm.EndpointSpec) {
	for f := r.first(); f != nil; f = r.next() {
		switch string(f) {
		case "NetworkName":
			s.NetworkName = string(r.text())
		case "Pod":
			s.Pod = string(r.text())
		case "PodUID":
			s.PodUID = types.UID(r.text())
		case "CID":
			s.CID = string(r.text())
		case "apiType":
			s.APIType = string(r.text())
		case "Interface":
			r.face(&s.Interface)
		case "NetworkType", "EndpointID", "Host", "netns":
			r.text()
		default:
			r.isOdd = true
		}
	}
}

func (r *reader) face(face *danm.EndpointInterface) {
	for f := r.first(); f != nil; f = r.next() {
		switch string(f) {
		case "Address":
			face.Address = string(r.text())
		case "AddressIPv6":
			face.AddressIPv6 = string(r.text())
		case "Name", "MacAddress", "DeviceID":
			r.text()
		default:
			r.isOdd = true
		}
	}
}

// metadata passes the metadata of an object, which the records repeat. d notes
// what every write changes; nil does not.
func (r *reader) metadata(d *document) {
	for f := r.first(); f != nil; f = r.next() {
		switch string(f) {
		case "name", "namespace", "uid":
			r.text()
		case "labels", "annotations":
			r.texts(nil)
		case "creationTimestamp":
			r.moment()
		case "resourceVersion":
			d.note(r, loose{isAllocation: true})
		case "generation":
			d.note(r, loose{isAllocation: true, isNumber: true})
		default:
			r.isOdd = true
		}
	}
}

// document is a network's object as it was last written.
type document struct {
	danm.Network
	stated []danm.PoolSpec // by the network
	data   []byte
	loose  []loose // in order; none if something in it is odd
}

// loose is a value that one write after the other changes.
type loose struct {
	from, until  int
	isNumber     bool
	isAllocation bool    // a cleaner's write may change it
	text         *string // where it belongs in the document; nil if nowhere
}

// note passes a loose value.
func (d *document) note(r *reader, v loose) {
	v.from = r.at
	v.read(r)
	v.until = r.at
	if d != nil {
		d.loose = append(d.loose, v)
	}
}

func (v *loose) isEmpty() bool { return v.text != nil && *v.text == "" }

// read passes the value, and tells whether it is another than before.
func (v *loose) read(r *reader) (isOther bool) {
	if v.isNumber {
		r.number()
		return false
	}
	text := r.text()
	if v.text == nil || *v.text == string(text) {
		return false
	}
	*v.text = string(text)
	return true
}

// update reads the next version of a network. isAllocation says that nothing
// changed but what allocations change; if it is false, something else may have.
func (d *document) update(ref danm.NetworkRef, data []byte) (isAllocation bool, err error) {
	if isSame, isAllocation := d.follow(data); isSame {
		d.restate()
		return isAllocation, nil
	}
	*d = document{data: data, loose: d.loose[:0]}
	r := reader{data: data}
	if d.read(&r); !r.isWhole() {
		*d = document{data: data}
		if err := json.Unmarshal(data, &d.Network); err != nil {
			return false, err
		}
	}
	d.Kind, d.Namespace, d.Name = string(ref.Kind), ref.Namespace, ref.Name
	d.stated = d.Pools()
	return false, nil
}

// restate brings the bitmaps up to date.
func (d *document) restate() {
	for i := range d.stated {
		s := &d.stated[i]
		s.Fields.Alloc = d.Spec.Options.Alloc
		if s.Family == danm.IPv6 {
			s.Fields.Alloc = d.Spec.Options.Alloc6
		}
	}
}

// follow reads a version that is, but for loose values, the one before it.
func (d *document) follow(data []byte) (isSame, isAllocation bool) {
	if len(d.loose) == 0 {
		return false, false
	}
	r := reader{data: data}
	before, at := d.data, 0
	isAllocation = true
	for i := range d.loose {
		v := &d.loose[i]
		r.takeAll(before[at:v.from])
		at = v.until
		v.from = r.at
		wasEmpty := v.isEmpty()
		if v.read(&r) && !v.isAllocation {
			isAllocation = false
		}
		if v.isEmpty() != wasEmpty {
			return false, false // a family comes or goes
		}
		v.until = r.at
	}
	r.takeAll(before[at:])
	d.data = data
	return r.isWhole(), isAllocation
}

// takeAll passes these bytes, which must come next.
func (r *reader) takeAll(these []byte) {
	if bytes.HasPrefix(r.data[r.at:], these) {
		r.at += len(these)
	} else {
		r.isOdd = true
	}
}

func (d *document) read(r *reader) {
	for f := r.first(); f != nil; f = r.next() {
		switch string(f) {
		case "apiVersion", "kind":
			r.text()
		case "metadata":
			r.metadata(d)
		case "spec":
			d.readSpec(r)
		default:
			r.isOdd = true
		}
	}
}

func (d *document) readSpec(r *reader) {
	for f := r.first(); f != nil; f = r.next() {
		switch string(f) {
		case "NetworkID", "NetworkType":
			r.text()
		case "Options":
			d.readOptions(r)
		default:
			r.isOdd = true
		}
	}
}

func (d *document) readOptions(r *reader) {
	o := &d.Spec.Options
	for f := r.first(); f != nil; f = r.next() {
		switch string(f) {
		case "alloc":
			d.note(r, loose{isAllocation: true, text: &o.Alloc})
		case "alloc6":
			d.note(r, loose{isAllocation: true, text: &o.Alloc6})
		case "allocation_pool":
			d.readPool(r, &o.Pool.Start, &o.Pool.End, nil, &o.Pool.LastIP)
		case "allocation_pool_v6":
			d.readPool(r, &o.PoolV6.Start, &o.PoolV6.End, &o.PoolV6.CIDR, &o.PoolV6.LastIP)
		case "cidr":
			o.CIDR = string(r.text())
		case "routes":
			o.Routes = r.texts(o.Routes)
		case "routes6":
			o.Routes6 = r.texts(o.Routes6)
		case "net6", "host_device", "container_prefix":
			r.text()
		case "vlan", "vxlan", "rt_tables":
			r.number()
		default:
			r.isOdd = true
		}
	}
}

// readPool reads the bounds of a family. cidr is nil where it has none of its own.
func (d *document) readPool(r *reader, start, end, cidr, last *string) {
	for f := r.first(); f != nil; f = r.next() {
		switch {
		case string(f) == "start":
			*start = string(r.text())
		case string(f) == "end":
			*end = string(r.text())
		case string(f) == "cidr" && cidr != nil:
			*cidr = string(r.text())
		case string(f) == "lastIp":
			d.note(r, loose{text: last})
		default:
			r.isOdd = true
		}
	}
}
