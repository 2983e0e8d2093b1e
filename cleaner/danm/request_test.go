package danm

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Every option that client-go knows must reach the server as client-go sends it,
// those that a later version of it adds as well.
func TestOptionsAreSentAsClientGoSendsThem(t *testing.T) {
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://127.0.0.1:1", ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		t.Fatal(err)
	}
	var options metav1.ListOptions
	fields := reflect.ValueOf(&options).Elem()
	for i := range fields.NumField() {
		if fields.Type().Field(i).Anonymous {
			continue // kind and version, which are no parameters
		}
		one := metav1.ListOptions{}
		for _, all := range []reflect.Value{fields, reflect.ValueOf(&one).Elem()} {
			fill(t, all.Field(i))
		}
		expectSameQuery(t, client, one)
	}
	expectSameQuery(t, client, options)
	expectSameQuery(t, client, metav1.ListOptions{})
}

// fill gives a field a value that is not its zero.
func fill(t *testing.T, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		fill(t, field.Elem())
	case reflect.String:
		field.SetString("a=b,c!=d")
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Int64:
		field.SetInt(7)
	default:
		t.Fatalf("no value for a %s", field.Type())
	}
}

func expectSameQuery(t *testing.T, client rest.Interface, o metav1.ListOptions) {
	t.Helper()
	want := client.Get().AbsPath("/x").SpecificallyVersionedParams(&o, scheme.ParameterCodec, corev1.SchemeGroupVersion).URL().Query()
	if got := WithOptions(client.Get().AbsPath("/x"), o).URL().Query(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v is sent as %v, by client-go as %v", o, got, want)
	}
}
