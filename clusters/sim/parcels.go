package sim

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// parcels are objects on their way from the API server to clients that take
// them as they are. Over the wire goes only the number of the parcel, which
// client-go reads, frames and decodes as it does any other encoding.
//
// The objects stay the server's: a client must not change what it was given.
type parcels struct {
	mu   sync.Mutex
	sent []parcel
}

// parcel is an answer, or an event of a watch.
type parcel struct {
	event   watch.EventType
	objects []apiserver.Object
	list    *apiserver.List
	other   runtime.Object // what is no object of the server's, such as a Status
}

// labelSize is how many bytes name a parcel.
const labelSize = 8

func (p *parcels) send(sent parcel) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, sent)
	return binary.BigEndian.AppendUint64(make([]byte, 0, labelSize), uint64(len(p.sent)-1))
}

func (p *parcels) open(label []byte) (parcel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(label) == labelSize {
		if n := binary.BigEndian.Uint64(label); n < uint64(len(p.sent)) {
			return p.sent[n], nil
		}
	}
	return parcel{}, fmt.Errorf("no parcel has the label %x", label)
}

func (p *parcels) sendResponse(r apiserver.Response) []byte {
	sent := parcel{objects: r.Objects, list: r.List}
	switch {
	case r.Status != nil:
		sent.other = r.Status
	case r.Served != nil:
		sent.other = r.Served
	}
	return p.send(sent)
}

func (p *parcels) sendFrame(f apiserver.Frame) []byte {
	return p.send(parcel{event: f.Type, other: f.Object})
}

// encoding is what a client needs to take parcels.
func (p *parcels) encoding() *runtime.SerializerInfo {
	s := parcelSerializer{p}
	return &runtime.SerializerInfo{
		MediaType: apiserver.ContentObjects, MediaTypeType: "application", MediaTypeSubType: "vnd.danm-chaos.objects", Serializer: s,
		StreamSerializer: &runtime.StreamSerializerInfo{Serializer: s, Framer: labelFramer{}},
	}
}

// parcelSerializer implements runtime.Serializer for answers. Nothing is ever
// sent to the server in this encoding.
type parcelSerializer struct{ parcels *parcels }

func (s parcelSerializer) Identifier() runtime.Identifier { return "parcels" }

func (s parcelSerializer) Encode(runtime.Object, io.Writer) error {
	return fmt.Errorf("requests are not sent as %s", apiserver.ContentObjects)
}

// Decode implements runtime.Decoder. An event of a watch is opened twice: for
// what it is, and for its object.
func (s parcelSerializer) Decode(label []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	p, err := s.parcels.open(label)
	if err != nil {
		return nil, nil, err
	}
	o, err := p.unpack(label, into)
	return o, &schema.GroupVersionKind{}, err
}

func (p parcel) unpack(label []byte, into runtime.Object) (runtime.Object, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		event.Type, event.Object.Raw = string(p.event), label
		return event, nil
	}
	switch {
	case p.list != nil:
		if into == nil {
			into = listOf(p.list.Kind)
		}
		return into, p.unpackList(into)
	case p.other != nil:
		return p.unpackOther(into), nil
	case into == nil:
		return p.objects[0], nil
	}
	return into, unpackObject(p.objects[0], into)
}

// unpackOther returns a Status as it is, whatever the client hoped for.
func (p parcel) unpackOther(into runtime.Object) runtime.Object {
	switch sent := p.other.(type) {
	case *metav1.APIGroupList:
		if list, isWanted := into.(*metav1.APIGroupList); isWanted {
			*list = *sent
			return list
		}
	case *metav1.APIResourceList:
		if list, isWanted := into.(*metav1.APIResourceList); isWanted {
			*list = *sent
			return list
		}
	}
	return p.other
}

func unpackObject(from apiserver.Object, into runtime.Object) error {
	switch into := into.(type) {
	case *unstructured.Unstructured:
		into.Object = from.(*unstructured.Unstructured).Object
	case *corev1.Pod:
		*into = *from.(*corev1.Pod)
	case *corev1.Node:
		*into = *from.(*corev1.Node)
	case *coordinationv1.Lease:
		from.(*coordinationv1.Lease).DeepCopyInto(into) // the elector changes it
	default:
		return fmt.Errorf("no %T is sent as %s", into, apiserver.ContentObjects)
	}
	return nil
}

// listOf makes an empty list for a client that leaves it open which.
func listOf(kind string) runtime.Object {
	switch kind {
	case "PodList":
		return &corev1.PodList{}
	case "NodeList":
		return &corev1.NodeList{}
	}
	return &unstructured.UnstructuredList{}
}

func (p parcel) unpackList(into runtime.Object) error {
	switch into := into.(type) {
	case *unstructured.UnstructuredList:
		into.SetAPIVersion(p.list.APIVersion)
		into.SetKind(p.list.Kind)
		into.SetResourceVersion(p.list.ResourceVersion)
		into.SetContinue(p.list.Continue)
		into.Items = make([]unstructured.Unstructured, len(p.objects))
		for i, o := range p.objects {
			into.Items[i].Object = o.(*unstructured.Unstructured).Object
		}
	case *corev1.PodList:
		into.ListMeta, into.Items = p.list.ListMeta, make([]corev1.Pod, len(p.objects))
		for i, o := range p.objects {
			into.Items[i] = *o.(*corev1.Pod)
		}
	case *corev1.NodeList:
		into.ListMeta, into.Items = p.list.ListMeta, make([]corev1.Node, len(p.objects))
		for i, o := range p.objects {
			into.Items[i] = *o.(*corev1.Node)
		}
	default:
		return fmt.Errorf("no %T is sent as %s", into, apiserver.ContentObjects)
	}
	return nil
}

// labelFramer splits a watch into labels.
type labelFramer struct{}

func (labelFramer) NewFrameReader(r io.ReadCloser) io.ReadCloser { return labelReader{r} }

func (labelFramer) NewFrameWriter(w io.Writer) io.Writer { return w }

type labelReader struct{ io.ReadCloser }

// Read returns one label.
func (r labelReader) Read(p []byte) (int, error) {
	if len(p) < labelSize {
		return 0, io.ErrShortBuffer
	}
	return io.ReadFull(r.ReadCloser, p[:labelSize])
}
