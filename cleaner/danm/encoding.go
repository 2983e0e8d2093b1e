package danm

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// WithEncoding returns a copy of the config, which names its serializers, whose
// clients would rather have answers in one more encoding. nil is none.
func WithEncoding(config *rest.Config, more *runtime.SerializerInfo) *rest.Config {
	config = rest.CopyConfig(config)
	if more == nil {
		return config
	}
	config.AcceptContentTypes = more.MediaType + "," + config.AcceptContentTypes
	config.NegotiatedSerializer = encodings{
		config.NegotiatedSerializer, append(slices.Clone(config.NegotiatedSerializer.SupportedMediaTypes()), *more), more.Serializer,
	}
	return config
}

// encodings are the serializers of a client and one more.
type encodings struct {
	runtime.NegotiatedSerializer
	all  []runtime.SerializerInfo
	more runtime.Decoder
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (e encodings) SupportedMediaTypes() []runtime.SerializerInfo { return e.all }

// DecoderToVersion implements runtime.NegotiatedSerializer. Objects in the one
// more encoding are of the version that was asked for.
func (e encodings) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	if d == e.more {
		return d
	}
	return e.NegotiatedSerializer.DecoderToVersion(d, gv)
}
