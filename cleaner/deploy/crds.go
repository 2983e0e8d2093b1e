package deploy

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

//go:embed crds.yaml
var crdsYAML []byte

// approvalAnnotation is demanded by the API server for every CRD whose group
// ends in k8s.io. DANM's old group was never approved, and the value says so.
const (
	approvalAnnotation = "api-approved.kubernetes.io"
	approvalValue      = "unapproved, the group of DANM up to 4.3"
)

// CRDs returns the definitions of DanmEp, DanmNet, TenantNetwork,
// ClusterNetwork and ReservedIP in the group, in this order. The caller owns
// the objects.
func CRDs(g danm.Group) ([]*unstructured.Unstructured, error) {
	data, err := crdsJSON()
	if err != nil {
		return nil, fmt.Errorf("parsing embedded CRDs: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	if err := list.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("decoding embedded CRDs: %w", err)
	}
	var crds []*unstructured.Unstructured
	for i := range list.Items {
		crd := &list.Items[i]
		if err := moveToGroup(crd, g); err != nil {
			return nil, fmt.Errorf("moving CRD %s to group %s: %w", crd.GetName(), g, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// crdsJSON is what is embedded, read once: a simulator asks for it often.
var crdsJSON = sync.OnceValues(func() ([]byte, error) { return yaml.YAMLToJSON(crdsYAML) })

func moveToGroup(crd *unstructured.Unstructured, g danm.Group) error {
	plural, _, err := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	if err != nil {
		return err
	}
	crd.SetName(plural + "." + string(g))
	if strings.HasSuffix(string(g), ".k8s.io") {
		crd.SetAnnotations(map[string]string{approvalAnnotation: approvalValue})
	}
	return unstructured.SetNestedField(crd.Object, string(g), "spec", "group")
}
